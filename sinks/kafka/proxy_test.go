//go:build cgo

package kafka

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"celldexport/sinks/sinktest"
)

// proxy stands between clients and a broker that names the proxy's address as
// its own. It does to produce requests and their answers what the suite has a
// place do.
type proxy struct {
	address, broker string
	sinktest.Conduct

	serving sync.WaitGroup
	mu      sync.Mutex
	entry   net.Listener // nil while the place is down
	links   map[*link]struct{}
	losing  bool
	// lost answers since losing began; held are the requests that were
	// stalled and are not answered.
	lost, held int
}

// up lets clients in.
func (p *proxy) up(t testing.TB) {
	t.Helper()
	var entry net.Listener
	sinktest.Eventually(t, "listener of the proxy", func() (ok bool) {
		var err error
		if entry, err = net.Listen("tcp", p.address); err != nil {
			t.Log(err) // the port may not be free yet
		}
		return err == nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entry = entry
	p.serving.Go(func() { p.accept(entry) })
}

// down ends all connections and lets nobody in.
func (p *proxy) down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entry == nil {
		return
	}
	p.entry.Close()
	p.entry = nil
	for l := range p.links {
		l.close()
	}
}

func (p *proxy) accept(entry net.Listener) {
	for {
		client, err := entry.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", p.broker)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{proxy: p, client: client, broker: broker, asked: map[uint32]bool{}}
		p.mu.Lock()
		if p.entry != entry {
			l.close()
		}
		if p.links == nil {
			p.links = map[*link]struct{}{}
		}
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.serving.Go(l.requests)
		p.serving.Go(l.answers)
	}
}

// behave has later requests and answers treated otherwise.
func (p *proxy) behave(b sinktest.Behavior) {
	p.mu.Lock()
	p.losing, p.lost = b == sinktest.Losing, 0
	p.mu.Unlock()
	p.Set(b)
}

// counts are the answers that were lost, and the stalled requests without one.
func (p *proxy) counts() (lost, held int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost, p.held
}

// link is one client's connection. Its maps are guarded by the proxy's mu.
type link struct {
	proxy          *proxy
	client, broker net.Conn
	// asked are the produce requests that are not answered, and whether each
	// was stalled.
	asked map[uint32]bool
	// left: the client closed its side.
	left bool
}

func (l *link) close() {
	l.client.Close()
	l.broker.Close()
}

// requests hands the client's on. What it sent before it closed its side is
// handed on and answered for by the broker all the same, as what a network
// holds back may be.
func (l *link) requests() {
	for {
		frame, err := readFrame(l.client)
		if err != nil {
			l.leave()
			return
		}
		if kmsg.Key(binary.BigEndian.Uint16(frame[4:])) == kmsg.Produce {
			_, b, wait := l.proxy.Hit()
			l.ask(binary.BigEndian.Uint32(frame[8:]), b == sinktest.Stalled)
			if wait != nil {
				wait()
			}
		}
		if _, err := l.broker.Write(frame); err != nil {
			l.close()
			return
		}
	}
}

func (l *link) ask(id uint32, stalled bool) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.asked[id] = stalled
	if stalled {
		l.proxy.held++
	}
}

// leave ends the link once nothing is open.
func (l *link) leave() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.left = true; len(l.asked) == 0 {
		l.close()
	}
}

// answers hands the broker's back, but for those that get lost: with them goes
// the connection.
func (l *link) answers() {
	for {
		frame, err := readFrame(l.broker)
		if err != nil {
			l.end()
			return
		}
		if l.answered(binary.BigEndian.Uint32(frame[4:])) {
			l.close()
			continue
		}
		_, _ = l.client.Write(frame) // it may be gone
	}
}

// answered notes an answer and reports whether the link ends instead of
// passing it on.
func (l *link) answered(id uint32) (ends bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	stalled, produce := l.asked[id]
	if !produce {
		return false
	}
	delete(l.asked, id)
	if stalled {
		p.held--
	}
	if p.losing {
		p.lost++
	}
	return p.losing || l.left && len(l.asked) == 0
}

// end forgets the link.
func (l *link) end() {
	l.close()
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, stalled := range l.asked {
		if stalled {
			p.held--
		}
	}
	clear(l.asked)
	delete(p.links, l)
}

// readFrame reads one request or answer, its length before it.
func readFrame(c net.Conn) ([]byte, error) {
	frame := make([]byte, 4, 512)
	if _, err := io.ReadFull(c, frame); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(frame))
	if n < 4 || n > 100<<20 {
		return nil, errors.New("no frame of the protocol")
	}
	frame = append(frame, make([]byte, n)...)
	_, err := io.ReadFull(c, frame[4:])
	return frame, err
}
