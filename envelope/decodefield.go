package envelope

// The readers below fill one Go value from one field.

func str[T ~string](into *T) func(*scanner) error {
	return func(s *scanner) error {
		v, err := s.str()
		*into = T(v)
		return err
	}
}

// strOr reads a string, "" for null.
func strOr(into *string) func(*scanner) error {
	return func(s *scanner) error {
		p, err := readStringOrNull(s)
		if p != nil {
			*into = *p
		}
		return err
	}
}

func strs(into *[]string) func(*scanner) error {
	return func(s *scanner) (err error) {
		*into, err = readStrings(s)
		return err
	}
}

func num[T uint32 | uint64](into *T) func(*scanner) error {
	return func(s *scanner) error {
		bits := 64
		if uint64(^T(0)) == 1<<32-1 {
			bits = 32
		}
		v, err := readUint(s, bits)
		*into = T(v)
		return err
	}
}

func numOrNull(into **uint64) func(*scanner) error {
	return func(s *scanner) (err error) {
		*into, err = readUintOrNull(s)
		return err
	}
}

func flag(into *bool) func(*scanner) error {
	return func(s *scanner) (err error) {
		*into, err = readBool(s)
		return err
	}
}

func position(into *Position) func(*scanner) error {
	return func(s *scanner) error {
		list, err := readMembers(s)
		if err != nil {
			return err
		}
		f := &fields{members: list}
		f.required("epoch", num(&into.Epoch))
		f.required("txid", num(&into.TXID))
		f.required("commit", num(&into.Commit))
		return f.err
	}
}

func tables(into *[]TableGeneration) func(*scanner) error {
	return func(s *scanner) error {
		*into = []TableGeneration{}
		return s.array(func(int) error {
			list, err := readMembers(s)
			if err != nil {
				return err
			}
			var tg TableGeneration
			f := &fields{members: list}
			f.required("table", str(&tg.Table))
			f.required("generation", num(&tg.Generation))
			*into = append(*into, tg)
			return f.err
		})
	}
}
