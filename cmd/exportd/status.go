package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"celldexport/cmd/internal/cli"
	"celldexport/internal/config"
)

func (a *app) statusCommand() *cobra.Command {
	var addr string
	c := &cobra.Command{
		Use:   "status [--addr HOST:PORT]",
		Short: "Print the state of a running exportd as JSON",
		Long:  "status asks a running exportd for its /state and prints it.\n" + exitHelp,
		Args:  cli.AtMost(0),
		RunE:  func(c *cobra.Command, _ []string) error { return a.status(c.Context(), addr) },
	}
	c.Flags().StringVar(&addr, "addr", "", "where exportd listens (default: variable EXPORTD_LISTEN, or "+config.Default().Listen+")")
	return c
}

// stateLimit bounds what is read of an answer: whatever listens at the
// address may not be exportd.
const stateLimit = 64 << 20

func (a *app) status(ctx context.Context, addr string) error {
	if addr == "" {
		addr = cli.Lookup(a.environ, "EXPORTD_LISTEN")
	}
	if addr == "" {
		addr = config.Default().Listen
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return cli.Usage("--addr %s: not host:port", addr)
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "localhost"
	}
	url := "http://" + net.JoinHostPort(host, port) + "/state"
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return cli.Usage("--addr %s: %w", addr, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask exportd for its state: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, stateLimit))
	if err != nil {
		return fmt.Errorf("read the state from %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		return fmt.Errorf("%s answers no JSON: %w", url, err)
	}
	_, err = pretty.WriteTo(a.stdout)
	return err
}
