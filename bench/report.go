package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
)

// Unit is what a measurement counts.
type Unit string

// The units of rows.
const (
	PerSecond    Unit = "/s"
	MiBPerSecond Unit = "MiB/s"
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
	MiB          Unit = "MiB"
	Count        Unit = "count"
)

// moreIsBetter says which way a ratio goes. A count has no better side.
func (u Unit) moreIsBetter() bool { return u == PerSecond || u == MiBPerSecond }

// Row is one result: some work by one subject.
type Row struct {
	Suite   string `json:"suite"`
	Work    string `json:"work"`
	Subject string `json:"subject"`
	Unit    Unit   `json:"unit"`
	Summary
	Ratio float64 `json:"ratio,omitempty"` // to the first subject of the same work, above 1 better than it; 0: no comparison
}

// Report is all of what was measured, and where.
type Report struct {
	Version string  `json:"version"`
	Machine Machine `json:"machine"`
	Rows    []Row   `json:"rows"`
}

// compareRows fills in the ratios to the row of the same work whose subject is baseline.
func compareRows(rows []Row, baseline string) {
	for i := range rows {
		base := slices.IndexFunc(rows, func(r Row) bool {
			return r.Work == rows[i].Work && r.Subject == baseline
		})
		if base < 0 || rows[i].Median == 0 || rows[base].Median == 0 {
			continue
		}
		rows[i].Ratio = rows[i].Median / rows[base].Median
		if !rows[i].Unit.moreIsBetter() {
			rows[i].Ratio = 1 / rows[i].Ratio
		}
	}
}

// WriteJSON writes the report for other programs.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// Print writes the report for people: a table for each suite, with a line for each work and a column for each subject.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%s\n%s\n", r.Version, r.Machine)
	for _, suite := range distinct(r.Rows, func(row Row) string { return row.Suite }) {
		rows := slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return row.Suite != suite })
		fmt.Fprintf(w, "\n%s\n", suite)
		printSuite(w, rows)
	}
}

func printSuite(w io.Writer, rows []Row) {
	subjects := distinct(rows, func(row Row) string { return row.Subject })
	t := newTable(w)
	header := table.Row{"work", "unit"}
	for _, subject := range subjects {
		header = append(header, subject)
	}
	t.AppendHeader(header)
	for _, work := range distinct(rows, func(row Row) string { return row.Work }) {
		line := table.Row{work, ""}
		for _, subject := range subjects {
			line = append(line, "")
			for _, row := range rows {
				if row.Work == work && row.Subject == subject {
					line[1], line[len(line)-1] = row.Unit, row.cell()
				}
			}
		}
		t.AppendRow(line)
	}
	t.Render()
}

// cell is the median, the spread and the ratio as far as there are any.
func (r *Row) cell() string {
	cell := humanize.CommafWithDigits(r.Median, r.digits())
	if r.Runs > 1 {
		cell += fmt.Sprintf(" ±%.0f%%", r.Spread()*100)
	}
	if r.Ratio != 0 {
		cell += fmt.Sprintf(" (%.2f)", r.Ratio)
	}
	return cell
}

// digits is how many to show behind the point.
func (r *Row) digits() int {
	switch {
	case r.Unit == Count || r.Median >= 100:
		return 0
	case r.Median >= 1:
		return 2
	}
	return 3
}

// distinct returns the different values of key in the order in which rows have them.
func distinct(rows []Row, key func(Row) string) []string {
	var values []string
	for _, row := range rows {
		if value := key(row); !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}
