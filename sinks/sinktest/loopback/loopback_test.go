package loopback

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// A server comes, goes and comes again; in between connections are refused and
// nobody else is given the port.
func TestServersComeAndGo(t *testing.T) {
	p, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		if c, err := net.Dial("tcp", p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens, and dialling says %v, %v", c, err)
		}
		l, err := net.Listen("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		other, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if l.Addr().String() == p.Address() || other.Number() == p.Number() {
			t.Fatalf("port %d is given away", p.Number())
		}
	}
}
