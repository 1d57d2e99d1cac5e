package objstore

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// How keys become paths below the directory of a File store. A key's last
// part is a file, the ones before it are folders, and each keeps its own name
// as far as that can be told apart afterwards:
//
//	~ in a part                  ~~
//	a file that does not end in
//	.parquet, .json or .ltx      its name, then ~f
//	a folder that does           its name, then ~d
//	a part longer than maxPiece  pieces of that length as folders, each with
//	                             ~+ after it, then the rest
//
// So export/changes/n1/2026/11/30/05/1-ab.parquet lies under exactly that
// name, and a key may be both an object (own~f) and a prefix (own). Names of
// the store's own start with a single ~.
const (
	escape     = "~"
	fileMark   = "~f"
	folderMark = "~d"
	pieceMark  = "~+"
	tempFolder = "~tmp"
	lockFile   = "~lock"
	maxPiece   = 240 // file systems allow 255 bytes, marks and escapes included
)

// plainExtension tells the names of most objects of a bucket; such files carry
// no mark. The list is part of the layout: changing it hides stored objects.
func plainExtension(part string) bool {
	switch path.Ext(part) {
	case ".parquet", ".json", ".ltx":
		return true
	}
	return false
}

// keyPath returns the path of a checked key, relative to the directory.
func keyPath(key string) string {
	folders, name := path.Split(key)
	mark := fileMark
	if plainExtension(name) {
		mark = ""
	}
	return filepath.Join(appendPart(appendFolders(nil, folders), name, mark)...)
}

// folderPath returns the path of the folder for keys that start with the
// parts of start, which has no slash at its end.
func folderPath(start string) string { return filepath.Join(appendFolders(nil, start+"/")...) }

// appendFolders appends the folders of a key up to its last slash.
func appendFolders(names []string, folders string) []string {
	for folders != "" {
		part, rest, _ := strings.Cut(folders, "/")
		mark := ""
		if plainExtension(part) {
			mark = folderMark
		}
		names, folders = appendPart(names, part, mark), rest
	}
	return names
}

// appendPart appends the folders of a part's pieces and its last name.
func appendPart(names []string, part, mark string) []string {
	name := strings.ReplaceAll(part, escape, escape+escape)
	for len(name) > maxPiece {
		cut := maxPiece
		if strings.Count(name[:cut], escape)%2 == 1 {
			cut-- // never between the two halves of an escape
		}
		names = append(names, name[:cut]+pieceMark)
		name = name[cut:]
	}
	return append(names, name+mark)
}

// nameKind is what a name in a directory stands for.
type nameKind uint8

const (
	nameForeign nameKind = iota // nothing that a key leads to
	nameFile
	nameFolder
	namePiece // a folder that holds the rest of a long part
)

// parseName returns the part of a key, or the piece of one, that a name stands
// for. Names that keyPath never makes may pass; whoever assembles the key
// compares its keyPath.
func parseName(name string, isDir bool) (part string, kind nameKind) {
	kind = nameFile
	marks := map[string]nameKind{fileMark: nameFile}
	if isDir {
		kind = nameFolder
		marks = map[string]nameKind{folderMark: nameFolder, pieceMark: namePiece}
	}
	for mark, is := range marks {
		// After a doubled ~ the letter belongs to the part.
		if rest, ok := strings.CutSuffix(name, mark); ok && (len(rest)-len(strings.TrimRight(rest, escape)))%2 == 0 {
			name, kind = rest, is
			break
		}
	}
	halves := strings.Split(name, escape+escape)
	if name == "" || slices.ContainsFunc(halves, func(s string) bool { return strings.Contains(s, escape) }) {
		return "", nameForeign
	}
	return strings.Join(halves, escape), kind
}
