package ltxfile

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// nameSuffix ends the name of every file.
const nameSuffix = ".ltx"

// txidDigits is how many hex digits a txid has in a file's name.
const txidDigits = 16

// FileName is the name of the file that covers the transactions minTXID to
// maxTXID: 16 lower-case hex digits each.
func FileName(minTXID, maxTXID uint64) string {
	b := make([]byte, 0, 2*txidDigits+1+len(nameSuffix))
	b = appendTXID(b, minTXID)
	b = append(b, '-')
	b = appendTXID(b, maxTXID)
	return string(append(b, nameSuffix...))
}

// ParseFileName reads a name that FileName could have built. Anything else,
// such as upper-case digits, a suffix behind ".ltx", txid 0 or a range that
// runs backwards, is not the name of a finished file and ok is false.
func ParseFileName(name string) (minTXID, maxTXID uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, nameSuffix)
	if !ok || len(digits) != 2*txidDigits+1 || digits[txidDigits] != '-' {
		return 0, 0, false
	}
	minTXID, okMin := parseTXID(digits[:txidDigits])
	maxTXID, okMax := parseTXID(digits[txidDigits+1:])
	if !okMin || !okMax || minTXID == 0 || maxTXID < minTXID {
		return 0, 0, false
	}
	return minTXID, maxTXID, true
}

func appendTXID(dst []byte, txid uint64) []byte {
	var b [txidDigits / 2]byte
	binary.BigEndian.PutUint64(b[:], txid)
	return hex.AppendEncode(dst, b[:])
}

func parseTXID(s string) (txid uint64, ok bool) {
	for i := range len(s) {
		c := s[i]
		switch {
		case '0' <= c && c <= '9':
			txid = txid<<4 | uint64(c-'0')
		case 'a' <= c && c <= 'f':
			txid = txid<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return txid, true
}
