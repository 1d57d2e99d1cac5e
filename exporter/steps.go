package exporter

// Step is a point on the way from the spool to the state database where a
// crash or a full disk leaves something half done. Options.Step is called
// there.
type Step string

// The steps of a commit, in their order.
const (
	// StepSpooled: the spool holds a batch, no shadow has its pages.
	StepSpooled Step = "spooled"
	// StepPages: before the pages of one shadow are written.
	StepPages Step = "pages"
	// StepSynced: before one shadow is synced.
	StepSynced Step = "shadow synced"
	// StepDocuments: shadows hold the batch, documents do not say so.
	StepDocuments Step = "documents"
	// StepApplied: documents say so, the spool's mark does not.
	StepApplied Step = "applied"
	// StepObsolete: before a shadow that nothing names is removed.
	StepObsolete Step = "obsolete"
	// StepEnter: before a residency that the ledger holds is in its document.
	StepEnter Step = "enter"
	// StepBase: before the document names a shadow that was made for a
	// residency.
	StepBase Step = "base"
	// StepSnapshot: before the snapshot of a re-base is spooled.
	StepSnapshot Step = "snapshot"
	// StepOwners: before the owner map of a shadow that is closed is kept.
	StepOwners Step = "owners"
)

// at passes a step; the error is one of the state directory.
func (k *kit) at(s Step) error {
	if k.step == nil {
		return nil
	}
	return stateFailed(k.step(s))
}

// Steps are all steps, in their order.
func Steps() []Step {
	return []Step{StepSpooled, StepPages, StepSynced, StepDocuments, StepApplied, StepObsolete, StepEnter, StepBase, StepSnapshot, StepOwners}
}
