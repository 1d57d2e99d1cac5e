package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// Line is one measurement, a line of the table. What does not apply is zero.
type Line struct {
	Stage string `json:"stage"`
	What  string `json:"what"`
	On    string `json:"on"`
	// NS is the time of one operation in nanoseconds.
	NS float64 `json:"ns,omitempty"`
	// Value is the figure itself, in Unit.
	Value float64 `json:"value,omitempty"`
	Unit  string  `json:"unit,omitempty"`
	// Allocs is the number of allocations per Per.
	Allocs float64 `json:"allocs"`
	Per    string  `json:"per,omitempty"`
	// Floor is what Ratio compares with; Low and High are its quartiles.
	Floor string  `json:"floor,omitempty"`
	Ratio float64 `json:"ratio,omitempty"`
	Low   float64 `json:"ratio_low,omitempty"`
	High  float64 `json:"ratio_high,omitempty"`
	// Goal is what was promised, Verdict "met", "missed" or "" without goal.
	Goal    string `json:"goal,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Note    string `json:"note,omitempty"`
}

// took fills in what a contender took for n things of bytes altogether.
func (l Line) took(r result, n int, per string) Line {
	l.NS, l.Allocs, l.Per = r.median(), r.allocs/float64(n), per
	return l
}

// rate sets the figure to things per second of the median.
func (l Line) rate(n float64, unit string) Line {
	l.Value, l.Unit = n/l.NS*1e9, unit
	return l
}

// mbps sets the figure to MB/s.
func (l Line) mbps(bytes int) Line { return l.rate(float64(bytes)/1e6, "MB/s") }

// versus compares with a floor.
func (l Line) versus(floor string, s spread) Line {
	l.Floor, l.Ratio, l.Low, l.High = floor, s.Mid, s.Low, s.High
	return l
}

// atMost and atLeast judge a figure by a goal.
func (l Line) atMost(figure, goal float64, text string) Line {
	return l.judged(figure <= goal, "<= "+text)
}

func (l Line) atLeast(figure, goal float64, text string) Line {
	return l.judged(figure >= goal, ">= "+text)
}

func (l Line) judged(met bool, goal string) Line {
	l.Goal, l.Verdict = goal, "missed"
	if met {
		l.Verdict = "met"
	}
	return l
}

// print writes the lines as a table.
func printTable(w io.Writer, lines []Line) error {
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(t, "STAGE\tMEASURED\tON\tTIME\tFIGURE\tALLOCS\tRATIO (QUARTILES) TO FLOOR\tGOAL\t\tNOTE")
	for _, l := range lines {
		fmt.Fprintln(t, strings.Join([]string{
			l.Stage, l.What, l.On, l.time(), l.figure(), l.allocs(), l.ratio(), l.Goal, l.Verdict, l.Note,
		}, "\t"))
	}
	return t.Flush()
}

func (l Line) time() string {
	if l.NS == 0 {
		return ""
	}
	d := time.Duration(l.NS)
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.0f ns", l.NS)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.0f us", l.NS/1e3)
	case d < 10*time.Second:
		return fmt.Sprintf("%.0f ms", l.NS/1e6)
	default:
		return fmt.Sprintf("%.1f s", l.NS/1e9)
	}
}

func (l Line) figure() string {
	if l.Unit == "" {
		return ""
	}
	return number(l.Value) + " " + l.Unit
}

func (l Line) allocs() string {
	if l.Per == "" {
		return ""
	}
	return fmt.Sprintf("%.3g/%s", l.Allocs, l.Per)
}

func (l Line) ratio() string {
	if l.Floor == "" {
		return ""
	}
	if l.Low == 0 || (l.Low == l.Ratio && l.High == l.Ratio) {
		return fmt.Sprintf("%s x %s", number(l.Ratio), l.Floor)
	}
	return fmt.Sprintf("%s (%s-%s) x %s", number(l.Ratio), number(l.Low), number(l.High), l.Floor)
}

// number writes three digits, with thousands apart.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.0f k", v/1e3)
	case a >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}
