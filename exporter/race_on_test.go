//go:build race

package exporter_test

// raced says that the race detector slows everything down.
const raced = true
