package diffpage

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
)

// probe is a test whose failures are results: what a random script is tried
// on again and again while it is made shorter.
type probe struct {
	testing.TB
	dir      string
	dirs     int
	said     []string
	cleanups []func()
}

// attempt runs body to its end or its first fatal error and returns what it
// complained about; a panic is a complaint too.
func attempt(t testing.TB, body func(testing.TB)) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "diffpage")
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{TB: t, dir: dir}
	for _, part := range []func(){func() { body(p) }, p.finish} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if r := recover(); r != nil {
					p.said = append(p.said, fmt.Sprintf("panic: %v\n%s", r, debug.Stack()))
				}
			}()
			part()
		}()
		<-done
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return p.said
}

func (p *probe) finish() {
	for _, f := range slices.Backward(p.cleanups) {
		f()
	}
}

func (p *probe) Helper()             {}
func (p *probe) Log(...any)          {}
func (p *probe) Logf(string, ...any) {}
func (p *probe) Fail()               { p.said = append(p.said, "failed") }
func (p *probe) Failed() bool        { return len(p.said) > 0 }
func (p *probe) Cleanup(f func())    { p.cleanups = append(p.cleanups, f) }
func (p *probe) Error(args ...any)   { p.said = append(p.said, fmt.Sprintln(args...)) }
func (p *probe) Errorf(format string, args ...any) {
	p.said = append(p.said, fmt.Sprintf(format, args...))
}

func (p *probe) FailNow() {
	p.Fail()
	runtime.Goexit()
}

func (p *probe) Fatal(args ...any) {
	p.Error(args...)
	runtime.Goexit()
}

func (p *probe) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

func (p *probe) TempDir() string {
	p.dirs++
	dir := filepath.Join(p.dir, strconv.Itoa(p.dirs))
	if err := os.Mkdir(dir, 0o700); err != nil {
		p.Fatal(err)
	}
	return dir
}
