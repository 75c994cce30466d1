package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func sampleReport() *Report {
	rows := []Row{
		{Suite: "data", Work: "write", Subject: "native", Unit: PerSecond, Summary: steady(2000)},
		{Suite: "data", Work: "write", Subject: "cached", Unit: PerSecond, Summary: steady(500)},
		{Suite: "data", Work: "find", Subject: "native", Unit: Seconds, Summary: steady(0.25)},
		{Suite: "data", Work: "find", Subject: "cached", Unit: Seconds, Summary: steady(1)},
		{Suite: "growth", Work: "descriptors", Subject: "late", Unit: Count, Summary: Summarize([]float64{11})},
	}
	compareRows(rows, "native")
	return &Report{Version: "tunefs v1", Machine: Machine{CPU: "abacus", Cores: 2}, Rows: rows}
}

func TestRatios(t *testing.T) {
	want := []float64{1, 0.25, 1, 0.25, 0}
	for i, row := range sampleReport().Rows {
		if row.Ratio != want[i] {
			t.Errorf("%s of %s: ratio %v, want %v", row.Work, row.Subject, row.Ratio, want[i])
		}
	}
}

func TestReportPrint(t *testing.T) {
	var out bytes.Buffer
	sampleReport().Print(&out)
	for _, want := range []string{"tunefs v1", "abacus", "native", "cached", "2,000 ±0% (1.00)", "500 ±0% (0.25)", "0.250 ±0% (1.00)", " 11 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "11.00") {
		t.Error("a count with digits behind the point")
	}
}

func TestReportJSON(t *testing.T) {
	var out bytes.Buffer
	report := sampleReport()
	if err := report.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Machine != report.Machine || len(back.Rows) != len(report.Rows) || back.Rows[1] != report.Rows[1] {
		t.Errorf("written %+v, read %+v", report, back)
	}
}

func TestFioResult(t *testing.T) {
	out := []byte("fio: a warning\n" + `{"jobs":[{"read":{"iops":0,"bw_bytes":0},"write":{"iops":12.5,"bw_bytes":2097152}}]}`)
	for unit, want := range map[Unit]float64{PerSecond: 12.5, MiBPerSecond: 2} {
		if got, err := fioResult(out, unit); err != nil || got != want {
			t.Errorf("in %s: %v, %v; want %v", unit, got, err, want)
		}
	}
	for _, bad := range []string{"", "no JSON", "{}"} {
		if _, err := fioResult([]byte(bad), PerSecond); err == nil {
			t.Errorf("fio's output %q was understood", bad)
		}
	}
}
