package celld

import "strings"

// The classes of celld's own services.
const (
	ClassD1       = "__D1Database"
	ClassKV       = "__KvNamespace"
	ClassQueue    = "__Queue"
	ClassWorkflow = "__Workflow"
	ClassCron     = ".cron"
)

// NeverExported reports whether cells of the class are celld's own business
// and never leave the node as change records: queues, workflows
// ("__Workflow" and "__Workflow.<script>") and cron (".cron", ".cron.*").
func NeverExported(class string) bool {
	return class == ClassQueue ||
		class == ClassWorkflow || strings.HasPrefix(class, ClassWorkflow+".") ||
		class == ClassCron || strings.HasPrefix(class, ClassCron+".")
}

// DefaultClass reports whether the class is exported when no list of classes
// is configured: application classes, D1 databases and KV namespaces. A class
// of the application is any name that celld does not keep for itself.
func DefaultClass(class string) bool {
	return class != "" && !strings.HasPrefix(class, ".") && !NeverExported(class)
}
