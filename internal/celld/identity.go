package celld

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrScriptUnclear is returned when the script that a cell belongs to cannot
// be told from what is deployed; a configured script name settles it.
var ErrScriptUnclear = errors.New("the script of the cell is unclear")

// halfID is the length in bytes of each half of a cell id.
const halfID = 16

// Namespace is the string that the ids of a class are derived from. The ids
// of D1, KV and queue cells do not depend on a script.
func Namespace(script, class string) string {
	const version = "cells:v1:"
	switch class {
	case ClassD1:
		return version + "d1:" + class
	case ClassKV:
		return version + "kv:" + class
	case ClassQueue:
		return version + "queue:" + class
	}
	return version + strconv.Itoa(len(script)) + ":" + script + ":" + class
}

// IDOf is the id, 64 lower-case hex digits, of the object that a script
// reaches under a name: 16 bytes derived from the name and 16 derived from
// those, both keyed by the namespace.
func IDOf(script, class, name string) string {
	key := sha256.Sum256([]byte(Namespace(script, class)))
	first := keyed(key[:], []byte(name))
	return hex.EncodeToString(first) + hex.EncodeToString(keyed(key[:], first))
}

// Belongs reports whether an id was made for the class of the script: its
// second half follows from the first. That also holds for ids of objects
// without a name, whose first half is random. For classes whose ids do not
// depend on a script the answer is the same for every script.
func Belongs(script, class, id string) bool {
	if len(id) != 4*halfID || !isLowerHex(id) {
		return false
	}
	raw, err := hex.DecodeString(id)
	if err != nil {
		return false
	}
	key := sha256.Sum256([]byte(Namespace(script, class)))
	return hmac.Equal(raw[halfID:], keyed(key[:], raw[:halfID]))
}

func keyed(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)[:halfID]
}

// ScriptFor finds the script that a cell belongs to among the deployed ones:
// the one script whose manifest lists the class; when several do, or none
// does (a class that is no longer deployed, a shared service), the one script
// that the id was made for. Errors wrap ErrScriptUnclear.
func ScriptFor(class, id string, manifests []Manifest) (string, error) {
	var listed, all []string
	for _, m := range manifests {
		if !slices.Contains(all, m.Script) {
			all = append(all, m.Script)
		}
		if slices.Contains(m.Classes, class) && !slices.Contains(listed, m.Script) {
			listed = append(listed, m.Script)
		}
	}
	if len(listed) == 1 {
		return listed[0], nil
	}
	candidates := listed
	if len(listed) == 0 {
		candidates = all
	}
	var made []string
	for _, script := range candidates {
		if Belongs(script, class, id) {
			made = append(made, script)
		}
	}
	if len(made) == 1 {
		return made[0], nil
	}
	return "", unclear(class, id, listed, made)
}

func unclear(class, id string, listed, made []string) error {
	switch {
	case len(made) > 1:
		return fmt.Errorf("class %s, id %s: its id fits the scripts %s alike: %w", class, id, strings.Join(made, ", "), ErrScriptUnclear)
	case len(listed) > 1:
		return fmt.Errorf("class %s, id %s: the scripts %s list the class and the id is of none of them: %w", class, id, strings.Join(listed, ", "), ErrScriptUnclear)
	}
	return fmt.Errorf("class %s, id %s: no deployed script lists the class or made the id: %w", class, id, ErrScriptUnclear)
}
