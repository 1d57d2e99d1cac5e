package blobstream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	blobstreampb "celldexport/sinks/blobstream/proto"
)

// transport calls a broker.
type transport interface {
	produce(ctx context.Context, address string, request *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error)
}

// pool keeps one connection per broker. One that left is closed when its last
// call ends, so that leaving does not make the call's outcome unknown.
type pool struct {
	mu    sync.Mutex
	conns map[string]*conn
}

type conn struct {
	grpc  *grpc.ClientConn
	calls int
	gone  bool
}

func newPool() *pool { return &pool{conns: map[string]*conn{}} }

const (
	connectTimeout = 2 * time.Second
	connectMin     = 25 * time.Millisecond
	connectMax     = time.Second
	keepAlive      = 30 * time.Second
	keepAliveWait  = 10 * time.Second
)

// dial makes a connection; it is established by the first call. Brokers speak
// cleartext HTTP/2 and know no service configuration; all retrying is the
// sink's own, since a call that failed may have stored its records.
func dial(address string) (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: connectTimeout,
			// The library's default grows to two minutes, longer than records
			// are to wait for a broker that is back.
			Backoff: backoff.Config{BaseDelay: connectMin, Multiplier: 2, Jitter: 0.5, MaxDelay: connectMax},
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: keepAliveWait}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(false), grpc.MaxCallSendMsgSize(maxRequest)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", address, err)
	}
	return connection, nil
}

func (p *pool) take(address string) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[address]
	if c == nil {
		connection, err := dial(address)
		if err != nil {
			return nil, err
		}
		c = &conn{grpc: connection}
		p.conns[address] = c
	}
	c.calls++
	return c, nil
}

func (p *pool) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.calls--; c.calls == 0 && c.gone {
		closeQuietly(c)
	}
}

// closeQuietly closes a connection that nothing waits for.
func closeQuietly(c *conn) { _ = c.grpc.Close() }

// keep drops the connections to all other addresses.
func (p *pool) keep(addresses map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, c := range p.conns {
		if addresses[address] {
			continue
		}
		delete(p.conns, address)
		c.gone = true
		if c.calls == 0 {
			closeQuietly(c)
		}
	}
}

// close drops all connections.
func (p *pool) close() { p.keep(nil) }

func (p *pool) produce(ctx context.Context, address string, request *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
	c, err := p.take(address)
	if err != nil {
		return nil, err
	}
	defer p.release(c)
	return blobstreampb.NewBrokerServiceClient(c.grpc).ProduceBatches(ctx, request)
}
