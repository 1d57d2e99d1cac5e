package discover

import (
	"net"
	"strconv"

	"celldexport/sinks/blobstream/route"
)

// endpoints is what is needed of a Kubernetes Endpoints object (core/v1).
type endpoints struct {
	Metadata meta `json:"metadata"`
	Subsets  []struct {
		// Addresses are those that are ready.
		Addresses []struct {
			IP        string `json:"ip"`
			Hostname  string `json:"hostname"`
			TargetRef *struct {
				Name string `json:"name"`
			} `json:"targetRef"`
		} `json:"addresses"`
		Ports []struct {
			Port int `json:"port"`
		} `json:"ports"`
	} `json:"subsets"`
}

type meta struct {
	ResourceVersion string `json:"resourceVersion"`
}

// brokers are the ready addresses with their subset's first port. A broker's
// id is the name of its pod, which is what brokers take for their own id when
// none is set.
func (e *endpoints) brokers() []route.Broker {
	var list []route.Broker
	seen := map[string]bool{}
	for _, subset := range e.Subsets {
		if len(subset.Ports) == 0 {
			continue
		}
		port := strconv.Itoa(subset.Ports[0].Port)
		for _, a := range subset.Addresses {
			address := net.JoinHostPort(a.IP, port)
			if a.IP == "" || seen[address] {
				continue
			}
			seen[address] = true
			id := a.IP + ":" + port
			switch {
			case a.TargetRef != nil && a.TargetRef.Name != "":
				id = a.TargetRef.Name
			case a.Hostname != "":
				id = a.Hostname
			}
			list = append(list, route.Broker{ID: id, Address: address})
		}
	}
	return list
}
