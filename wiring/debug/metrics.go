package debug

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// collector makes metrics of a State, anew for each scrape. Labels that name peers are only on what is unproved, so that a cluster whose processes restart makes no series without end.
type collector struct{ inspector *inspector }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kvbounce_"+name, help, labels, nil)
}

var (
	eventsDesc   = desc("events_total", "What the agent counts, by the names in core/transport/counters.go.", "event")
	routesDesc   = desc("requests_total", "Requests by why they took their path.", "route")
	channelDesc  = desc("channel_events_total", "What the control channel counts, by the names in its package's stats.go.", "event")
	arenaDesc    = desc("arena_bytes", "Bytes of the arena, whole granules; retained ones are among the granted and the staging.", "use")
	peersDesc    = desc("peers", "Peer incarnations by state.", "state")
	flowsDesc    = desc("flows", "Flows of peers that are open, or closed and waiting.")
	refusedDesc  = desc("bounce_refused", "1 while no bounce request is taken because too much is unproved.")
	answeredDesc = desc("reactor_answered", "1 if the agent's reactor looked in time.")
	unprovedDesc = desc("unproved_bytes", "Bytes that nothing proves to be untouched, by peer incarnation and part: whom to fence.", "peer", "part")
	sinceDesc    = desc("unproved_since_timestamp_seconds", "When the first of what is unproved came to be so.", "peer")
	drainDesc    = desc("draining_requests", "Failed requests that wait for evidence or the peer's answer to DRAIN.", "peer")
)

// metrics serves Prometheus text.
func metrics(i *inspector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{i})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: maxConnections, Timeout: writeWithin / 2})
}

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{eventsDesc, routesDesc, channelDesc, arenaDesc, peersDesc, flowsDesc, refusedDesc, answeredDesc, unprovedDesc, sinceDesc, drainDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.inspector.state(context.Background())
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	count := func(d *prometheus.Desc, values map[string]uint64) {
		for name, n := range values {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), name)
		}
	}
	count(eventsDesc, s.Counters)
	count(routesDesc, s.Routes)
	count(channelDesc, s.Channel)
	gauge(answeredDesc, float64(b2i(s.ReactorAnswered)))
	gauge(refusedDesc, float64(b2i(s.BounceRefusal != "")))
	if !s.ReactorAnswered {
		return // what would follow is not known, which is not the same as 0
	}
	gauge(arenaDesc, float64(s.Arena.Free), "free")
	gauge(arenaDesc, float64(s.Arena.Granted), "granted")
	gauge(arenaDesc, float64(s.Arena.Staging), "staging")
	gauge(arenaDesc, float64(s.Arena.Retained), "retained")
	gauge(flowsDesc, float64(s.Flows))
	states := map[string]int{"added": 0, "known": 0, "superseded": 0, "settling": 0, "fenced": 0}
	for _, p := range s.Peers {
		states[p.State]++
	}
	for state, n := range states {
		gauge(peersDesc, float64(n), state)
	}
	for _, u := range s.Unproved {
		for _, p := range u.Parts {
			gauge(unprovedDesc, float64(p.Bytes), u.Peer, p.Part)
		}
		if u.Since != nil {
			gauge(sinceDesc, float64(u.Since.UnixMicro())/1e6, u.Peer)
		}
		gauge(drainDesc, float64(u.Draining), u.Peer)
	}
}
