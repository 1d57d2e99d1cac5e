package config

import (
	"encoding/json"
	"strings"
)

// MarshalJSON writes the settings as they are in the file, in its order, with
// credentials taken out. Sizes are in bytes and *_ms in milliseconds.
func (s *Settings) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	open := ""
	for i, one := range settings() {
		section, name, nested := strings.Cut(one.key, ".")
		if !nested {
			section, name = "", one.key
		}
		if section != open && open != "" {
			b.WriteByte('}')
		}
		if i > 0 {
			b.WriteByte(',')
		}
		if section != open && section != "" {
			b.WriteString(`"` + section + `":{`)
		}
		open = section
		text, err := json.Marshal(one.show(s))
		if err != nil {
			return nil, err
		}
		b.WriteString(`"` + name + `":`)
		b.Write(text)
	}
	if open != "" {
		b.WriteByte('}')
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// String is the settings as JSON, with credentials taken out.
func (s *Settings) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		return "settings: " + err.Error()
	}
	return string(text)
}

// Variables gives the environment variable of every key, in the order of the
// file.
func Variables() (keys, variables []string) {
	for _, one := range settings() {
		keys, variables = append(keys, one.key), append(variables, one.variable)
	}
	return keys, variables
}
