package ltxtail

import (
	"io/fs"
	"sync"
	"sync/atomic"
)

// asker makes the calls of the file system and of the watcher, none of which
// need ever come back, and says what it is waiting for. No lock that another
// method of the Tail takes may be held around one.
type asker struct {
	files   FS
	watches *watches

	// calls counts the calls begun, ended is the count at the last one's end.
	ended atomic.Uint64
	mu    sync.Mutex
	calls uint64
	// dir is what the last call is about, watching that it is one of the
	// watcher.
	dir      string
	watching bool
}

func (a *asker) begin(dir string, watching bool) (call uint64) {
	a.mu.Lock()
	a.calls++
	a.dir, a.watching = dir, watching
	call = a.calls
	a.mu.Unlock()
	return call
}

// waits says which call is under way and about which directory, "" if none.
func (a *asker) waits() (call uint64, dir string, watching bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended.Load() == a.calls {
		return a.calls, "", false
	}
	return a.calls, a.dir, a.watching
}

func (a *asker) stat(name string) (fs.FileInfo, error) {
	call := a.begin(name, false)
	info, err := a.files.Stat(name)
	a.ended.Store(call)
	return info, err
}

func (a *asker) readDir(name string) ([]fs.DirEntry, error) {
	call := a.begin(name, false)
	entries, err := a.files.ReadDir(name)
	a.ended.Store(call)
	return entries, err
}

// watch has a directory watched. It is called before the directory is read, so
// that whatever appears in between is seen twice rather than never, and after
// it was asked for its state: a watcher that hangs has no events for anyone.
func (a *asker) watch(dir string) {
	call := a.begin(dir, true)
	a.watches.add(dir)
	a.ended.Store(call)
}
