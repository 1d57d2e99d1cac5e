// Package discover finds the brokers of a blob-stream deployment: a fixed
// list, or the ready endpoints of a Kubernetes service, followed as they
// change.
package discover

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"celldexport/sinks/blobstream/route"
)

// Source tells who the brokers are.
type Source interface {
	// Watch calls members with the brokers, and again whenever they change,
	// until ctx ends. The list may be empty: that is known then, not unknown.
	// Trouble is called when brokers cannot be looked up, which is tried
	// again, and with nil when they can once more. Neither is called at the
	// same time as the other.
	Watch(ctx context.Context, members func([]route.Broker), trouble func(error))
}

// kubernetesScheme begins the name of a service.
const kubernetesScheme = "k8s://"

// Parse reads brokers as settings name them: NODE_ID=host:port each, or one
// k8s://NAMESPACE/SERVICE alone.
func Parse(list []string) (Source, error) {
	if len(list) == 1 && strings.HasPrefix(list[0], kubernetesScheme) {
		namespace, service, ok := strings.Cut(strings.TrimPrefix(list[0], kubernetesScheme), "/")
		if !ok || namespace == "" || service == "" || strings.Contains(service, "/") {
			return nil, fmt.Errorf("broker %q is not k8s://NAMESPACE/SERVICE", list[0])
		}
		return InCluster(namespace, service)
	}
	var brokers Static
	seen := map[string]bool{}
	for _, text := range list {
		id, address, ok := strings.Cut(strings.TrimSpace(text), "=")
		if !ok || id == "" || checkAddress(address) != nil {
			return nil, fmt.Errorf("broker %q is not NODE_ID=host:port", text)
		}
		if seen[id] {
			return nil, fmt.Errorf("broker id %q is listed twice", id)
		}
		seen[id] = true
		brokers = append(brokers, route.Broker{ID: id, Address: address})
	}
	if len(brokers) == 0 {
		return nil, fmt.Errorf("no brokers are listed")
	}
	return brokers, nil
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("address %q has no host and port", address)
	}
	return nil
}

// Static is a list of brokers that never changes.
type Static []route.Broker

// Watch tells the list once; see [Source].
func (s Static) Watch(ctx context.Context, members func([]route.Broker), _ func(error)) {
	members(s)
	<-ctx.Done()
}
