package blobstream

import (
	"log/slog"
	"sync"
	"time"
)

// condition is what keeps records waiting: the trouble of each partition, and
// that of finding brokers.
type condition struct {
	log *slog.Logger
	now func() time.Time

	mu         sync.Mutex
	partitions map[uint32]trouble
	finding    trouble
	// toldAt is when trouble was logged last, zero when all was well since.
	toldAt time.Time
}

// trouble is an error that lasts since a time.
type trouble struct {
	err   error
	since time.Time
}

func (t trouble) renewed(err error, now time.Time) trouble {
	if t.err == nil {
		t.since = now
	}
	t.err = err
	return t
}

// retold is how long trouble is not logged again.
const retold = 30 * time.Second

// failed notes why a partition's batch was not taken.
func (c *condition) failed(partition uint32, err error) {
	now := c.now()
	c.mu.Lock()
	if c.partitions == nil {
		c.partitions = map[uint32]trouble{}
	}
	t := c.partitions[partition].renewed(err, now)
	c.partitions[partition] = t
	waiting := len(c.partitions)
	tell := c.tell(now)
	c.mu.Unlock()
	if tell {
		c.log.Warn("blob-stream brokers do not take records; they wait in the spool",
			"partition", partition, "error", err, "since", t.since, "partitions", waiting)
	}
}

// tell reports whether trouble is to be logged now.
func (c *condition) tell(now time.Time) bool {
	if !c.toldAt.IsZero() && now.Sub(c.toldAt) < retold {
		return false
	}
	c.toldAt = now
	return true
}

// delivered notes that a partition's batch was taken.
func (c *condition) delivered(partition uint32) {
	c.mu.Lock()
	_, was := c.partitions[partition]
	delete(c.partitions, partition)
	well := was && len(c.partitions) == 0 && !c.toldAt.IsZero()
	if well {
		c.toldAt = time.Time{}
	}
	c.mu.Unlock()
	if well {
		c.log.Info("blob-stream brokers take records again")
	}
}

// lookup notes why brokers cannot be found; nil when they can.
func (c *condition) lookup(err error) {
	now := c.now()
	c.mu.Lock()
	if err == nil {
		c.finding = trouble{}
		c.mu.Unlock()
		return
	}
	c.finding = c.finding.renewed(err, now)
	tell := c.tell(now)
	c.mu.Unlock()
	if tell {
		c.log.Warn("blob-stream brokers are not found", "error", err)
	}
}

// worst is how many partitions wait, since when at the longest, and why.
func (c *condition) worst() (waiting int, since time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	worst := c.finding
	for _, t := range c.partitions {
		if worst.err == nil || t.since.Before(worst.since) {
			worst = t
		}
	}
	return len(c.partitions), worst.since, worst.err
}

// forget drops all trouble: a run ended.
func (c *condition) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partitions, c.finding, c.toldAt = nil, trouble{}, time.Time{}
}
