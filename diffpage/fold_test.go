package diffpage

import "celldexport/diffpage/schema"

// fold gives the slow base what was written since it was last given anything,
// as one unit. Its changes are held against dumps, and its replica, which got
// them alone, against the one that got the changes unit by unit: the diff from A
// to C applied is the diff from A to B and that from B to C applied.
func (f *follower) fold() {
	f.t.Helper()
	slow := f.slow
	images, commit := unitOf(f.t, slow.seen, f.src.last)
	events := slow.take(images, commit, func(*schema.Schema) map[string]tableDump {
		return f.dumps
	})
	slow.seen = f.src.last
	slow.folds++
	for name := range events {
		tab := f.base.Schema().ByName(name)
		if tab == nil || slow.replica.sql[name] == "" {
			continue
		}
		checkEvents(f.t, name+" unit by unit and at once", f.replica.src.dumpTable(tab), slow.replica.src.dumpTable(tab), nil)
	}
}
