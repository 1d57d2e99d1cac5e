// Package loopback keeps ports for servers that a test stops and starts again.
// Only tests use it.
package loopback

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Port is a port of 127.0.0.1 that nobody else is given, whether a server
// listens there or not. While none does, connections are refused.
//
// It is held by a socket that is bound and does not listen: one that listens
// may be bound beside it, as both say that they reuse the address, and no port
// that the system chooses is one that is bound.
type Port struct {
	number int
	socket int
}

// Reserve takes a free port, to be given back with Close.
func Reserve() (*Port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	unix.CloseOnExec(fd)
	p := &Port{socket: fd}
	if p.number, err = bind(fd); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func bind(fd int) (port int, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	at, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("bound to %T", name)
	}
	return at.Port, nil
}

// Number is the port's.
func (p *Port) Number() int { return p.number }

// Address is host and port.
func (p *Port) Address() string { return fmt.Sprintf("127.0.0.1:%d", p.number) }

// Close gives the port back. A server may still listen there.
func (p *Port) Close() error { return unix.Close(p.socket) }
