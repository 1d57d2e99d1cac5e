package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"google.golang.org/grpc"

	blobstreampb "celldexport/sinks/blobstream/proto"
)

// benchTopic is the topic of every broker here.
const benchTopic = "bench"

// serveBroker makes this process a broker that acknowledges everything and
// keeps nothing, until its input ends. It says its address first. In the
// process that measures it would take the processor from what is measured.
func serveBroker(kind string, in io.Reader, out io.Writer) error {
	switch kind {
	case "kafka":
		return serveKafka(in, out)
	case "blobstream":
		return serveBlobstream(in, out)
	default:
		return fmt.Errorf("no broker %q; there are kafka and blobstream", kind)
	}
}

func serveKafka(in io.Reader, out io.Writer) error {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, benchTopic), kfake.BlackholeProduce())
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintln(out, c.ListenAddrs()[0])
	_, err = io.Copy(io.Discard, in)
	return err
}

// takesAll stores nothing and is always content.
type takesAll struct {
	blobstreampb.UnimplementedBrokerServiceServer
}

func (takesAll) ProduceBatches(_ context.Context, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
	answer := new(blobstreampb.ProduceBatchesResponse)
	for range r.Batches {
		answer.Results = append(answer.Results, new(blobstreampb.ProduceBatchResponse))
	}
	return answer, nil
}

func serveBlobstream(in io.Reader, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20))
	blobstreampb.RegisterBrokerServiceServer(server, takesAll{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintln(out, listener.Addr())
	_, err = io.Copy(io.Discard, in)
	server.Stop()
	return errors.Join(err, <-served)
}

// broker is one in a process of its own.
type broker struct {
	address string
	in      io.Closer
	cmd     *exec.Cmd
}

func startBroker(ctx context.Context, kind string) (*broker, error) {
	cmd, err := again(ctx, "-broker", kind)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a %s broker: %w", kind, err)
	}
	b := &broker{in: in, cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the address of the %s broker: %w", kind, err), b.close())
	}
	b.address = strings.TrimSpace(line)
	return b, nil
}

func (b *broker) close() error {
	return errors.Join(b.in.Close(), b.cmd.Wait())
}

// asBroker serves on the process's own input and output.
func asBroker(kind string) error { return serveBroker(kind, os.Stdin, os.Stdout) }
