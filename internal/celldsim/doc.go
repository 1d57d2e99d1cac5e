// Package celldsim is an honest stand-in for a small fleet of celld nodes in
// bucket posture. Tests and demonstrations drive it to get what a sidecar
// meets in the field: a data directory that fills and empties by celld's
// rules, and a bucket that receives the same files by celld's keys.
//
// The databases are real SQLite databases in WAL mode. A [Cell] is one
// resident Durable Object (or facet): statements run through it, [Cell.Capture]
// turns the WAL frames committed since the last capture into one LTX file,
// and [Cell.Upload] or [Cell.UploadMerged] carry the files to the bucket. A
// [Node] activates, evicts, hands off, takes over, crashes and reloads cells;
// ownership is decided by compare-and-swap on own.json and by nothing else,
// so a paused owner can go on writing files after it lost a cell, as in life.
// [Workload] makes random typed traffic and [Dump] reads a database back
// through SQLite for comparison with what a consumer holds.
//
// What is left out: the log tier of fleet posture (bundles, followers, open
// leases), alarms, and the output gate. A node acts only when told to; there
// are no background loops and no timers.
//
// Everything the caller can observe is a function of the seed, the clock and
// the calls, with one exception: SQLite draws the salts of each WAL itself,
// so the salt fields of captured headers, and with them file checksums,
// differ between runs.
//
// Capturing reads db.sqlite and its WAL through file descriptors of its own.
// On systems with process-wide record locks closing these gives up the locks
// that SQLite holds on the same file, so no second process may have a cell's
// live database open for writing.
package celldsim
