package delivery

import "celldexport/envelope"

// posting is one acknowledgement on its way into the journal: the accounts
// that the acknowledged entries change.
type posting struct {
	tx         *tx
	sink       int64
	name       string
	where      located
	now, idle  int64
	accounts   map[accountKey]*account
	records    int64
	watermarks int64
	bytes      int64
	dropped    int64
	held       []*account // came to be held by this acknowledgement
	whole      []head     // snapshots of whole streams
	answers    answers
}

type accountKey struct {
	stream envelope.Stream
	epoch  uint64
}

const (
	// postingAccounts bounds the accounts that a posting holds in memory.
	postingAccounts = 4096
	// keptEpochs are the epochs of a stream whose accounts are kept once they
	// are settled.
	keptEpochs = 4
)

// take posts one acknowledged entry.
func (p *posting) take(h *head) error {
	p.bytes += h.bytes
	u := &h.unit
	if u.Sink != "" && u.Sink != p.name {
		return nil
	}
	p.records += h.records
	key := accountKey{u.Stream, u.Position.Epoch}
	if u.Form == FormWatermark {
		p.records--
		p.watermarks++
		a, err := p.account(key)
		if a != nil {
			a.certified(h.seq, p.now, p.idle)
			a.place.extend(p.where)
		}
		return err
	}
	if !h.moves() {
		return nil
	}
	a, err := p.account(key)
	if err != nil || (a == nil && u.Form == FormClose) {
		return err
	}
	if a == nil {
		if a, err = p.begin(key); err != nil {
			return err
		}
	}
	return p.deliver(a, h)
}

// deliver takes an entry into its account.
func (p *posting) deliver(a *account, h *head) error {
	before := a.hold
	a.deliver(&h.summary, p.now, p.idle)
	if h.records > 0 {
		a.place.extend(p.where)
	}
	if a.hold&^before&holdOrder != 0 {
		p.held = append(p.held, a)
	}
	if len(p.accounts) >= postingAccounts {
		return p.store()
	}
	return nil
}

// adopt makes a watermark that is acknowledged the pending one of its account
// when the journal knows of none: the pass that spooled it was cut short, and
// another sync than its own showed it to the sink. Without this the next
// watermark would begin where this one began.
func (p *posting) adopt(entry *Stored) error {
	u := &entry.head.unit
	a, err := p.account(accountKey{u.Stream, u.Position.Epoch})
	if err != nil || a == nil || a.pending != nil {
		return err
	}
	w, err := mark(entry)
	if err == nil {
		a.found(entry.head.seq, w)
	}
	return err
}

// account finds an account, nil when there is none.
func (p *posting) account(key accountKey) (*account, error) {
	if a, ok := p.accounts[key]; ok {
		return a, nil
	}
	a, err := p.tx.load(p.sink, key.stream, key.epoch)
	if a != nil {
		p.accounts[key] = a
	}
	return a, err
}

// begin makes an account and drops those of epochs long past.
func (p *posting) begin(key accountKey) (*account, error) {
	a := &account{stream: key.stream, epoch: key.epoch}
	p.accounts[key] = a
	return a, p.prune(key.stream)
}

// prune drops the accounts of old epochs that have nothing left to certify.
func (p *posting) prune(s envelope.Stream) error {
	epochs, err := p.tx.oldEpochs(p.sink, s)
	if err != nil {
		return err
	}
	for _, epoch := range epochs {
		key := accountKey{s, epoch}
		a, err := p.account(key)
		if err != nil {
			return err
		}
		if a != nil && !a.settled() {
			continue
		}
		delete(p.accounts, key)
		if _, err := p.tx.Exec("DELETE FROM account WHERE sink = ? AND stream = ? AND epoch = ?", p.sink, keyOf(s), int64(epoch)); err != nil {
			return err
		}
	}
	return nil
}

// store writes the accounts and forgets them.
func (p *posting) store() error {
	for _, a := range p.accounts {
		if err := p.tx.store(p.sink, a); err != nil {
			return err
		}
	}
	clear(p.accounts)
	return nil
}

// finish writes the accounts and the sink's cursor.
func (p *posting) finish(cursor uint64) error {
	if err := p.store(); err != nil {
		return err
	}
	if err := p.drop(); err != nil {
		return err
	}
	_, err := p.tx.Exec("UPDATE sink SET cursor = ?, records = records + ?, watermarks = watermarks + ? WHERE id = ?",
		int64(cursor), p.records, p.watermarks, p.sink)
	return err
}
