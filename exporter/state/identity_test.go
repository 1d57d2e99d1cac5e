package state

import (
	"os"
	"testing"
)

// TestResetIsRepeated cuts a reset short in each of its parts: the directory
// still says whose it is, so that the next start finds it lost again.
func TestResetIsRepeated(t *testing.T) {
	for _, part := range []func(*Dir) string{(*Dir).Spool, (*Dir).Delivery, (*Dir).Shadows, (*Dir).Temp} {
		d, err := Open(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		want := Identity{ID: "us", Boot: 3, Token: "t"}
		if err := d.SaveIdentity(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		// What is not a directory cannot be emptied.
		if err := os.Remove(part(d)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(part(d), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Reset(t.Context()); err == nil {
			t.Fatalf("%s cannot be emptied and nobody noticed", part(d))
		}
		if got, err := d.Identity(t.Context()); err != nil || got != want {
			t.Errorf("cut short at %s the directory says %+v (%v), want %+v", part(d), got, err, want)
		}
		if err := os.Remove(part(d)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(part(d), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := d.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Identity(t.Context()); err != nil || got != (Identity{}) {
			t.Errorf("after a whole reset it says %+v (%v)", got, err)
		}
	}
}
