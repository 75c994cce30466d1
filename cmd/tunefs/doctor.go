package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

var doctorCommand = command{name: "doctor", summary: "say what this machine and a directory allow, and what to do about it", run: runDoctor}

const doctorHelp = `Usage: tunefs doctor [--json] [SOURCE]

Tries out what tunefs can use here, with these privileges: on this machine, and
in the directory SOURCE if it is given. Nothing is left behind there.
`

// finding is what one check has found.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`     // tunefs can use it
	Result string `json:"result"` // what is the case
	Advice string `json:"advice"` // what to do about it; empty if nothing
}

func runDoctor(e env, args []string) error {
	f := newFlags(e, doctorHelp)
	asJSON := f.Bool("json", false, "print JSON: a list of {check, ok, result, advice}")
	if err := parseFlags(f, args); err != nil {
		return err
	}
	if f.NArg() > 1 {
		return usagef("wants at most one SOURCE, but got %s; see 'tunefs doctor --help'", countOperands(f.NArg()))
	}
	findings := examineHost(thisHost())
	if source := f.Arg(0); source != "" {
		ofSource, err := examineSource(e, source)
		if err != nil {
			return err
		}
		findings = append(findings, ofSource...)
	}
	return printFindings(e, findings, *asJSON)
}

func printFindings(e env, findings []finding, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(e.out)
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		return out.Encode(findings)
	}
	const wide = 48 // three columns in a terminal of 130
	t := table.NewWriter()
	t.AppendHeader(table.Row{"check", "", "result", "what to do"})
	for _, f := range findings {
		mark := "ok"
		if !f.OK {
			mark = "no"
		}
		t.AppendRow(table.Row{f.Check, mark, f.Result, f.Advice})
	}
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 3, WidthMax: wide, WidthMaxEnforcer: text.WrapSoft},
		{Number: 4, WidthMax: wide, WidthMaxEnforcer: text.WrapSoft},
	})
	_, err := fmt.Fprintln(e.out, t.Render())
	return err
}

// examineSource looks at a directory that could be mounted.
func examineSource(e env, source string) ([]finding, error) {
	if err := checkSource(source); err != nil {
		return nil, err
	}
	source, err := filepath.Abs(source)
	if err != nil {
		return nil, err
	}
	findings := []finding{findFilesystem(source), tryMount(e, source)}
	return append(findings, tryFiles(source)...), nil
}
