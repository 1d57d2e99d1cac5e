package ltxtail

import (
	"io/fs"
	"sync"
)

// asker makes the calls of the file system and of the watcher, none of which
// need ever come back, and says what it is waiting for. No lock that another
// method of the Tail takes may be held around one.
type asker struct {
	files   FS
	watches *watches

	mu sync.Mutex
	// calls counts the calls made; dir is what the one under way is about, ""
	// while there is none, watching that it is one of the watcher.
	calls    uint64
	dir      string
	watching bool
}

func (a *asker) begin(dir string, watching bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	a.dir, a.watching = dir, watching
}

func (a *asker) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dir, a.watching = "", false
}

// waits says which call is under way and about which directory, "" if none.
func (a *asker) waits() (call uint64, dir string, watching bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls, a.dir, a.watching
}

func (a *asker) stat(name string) (fs.FileInfo, error) {
	a.begin(name, false)
	defer a.end()
	return a.files.Stat(name)
}

func (a *asker) readDir(name string) ([]fs.DirEntry, error) {
	a.begin(name, false)
	defer a.end()
	return a.files.ReadDir(name)
}

// watch has a directory watched. It is called before the directory is read, so
// that whatever appears in between is seen twice rather than never, and after
// it was asked for its state: a watcher that hangs has no events for anyone.
func (a *asker) watch(dir string) {
	a.begin(dir, true)
	defer a.end()
	a.watches.add(dir)
}
