package tests

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// modelOp is one operation of a model test: data only, so that it can be sent to a worker, dropped by the
// shrinker, printed as one line of a script and read back. Zero fields are left out of a line.
//
// Paths are relative to the root of the run. In strings, "x{255}" stands for 255 times x.
type modelOp struct {
	W     int    // the worker that does it
	Kind  string // see modelKinds
	FD    int    `op:"fd"`  // slot of a handle, from 1
	FD2   int    `op:"fd2"` // slot of a second handle
	At    int    `op:"at"`  // slot of the folder handle that Path is relative to; 0: the root of the run
	Map   int    `op:"map"` // slot of a mapping, from 1
	Path  string `op:"path"`
	Path2 string `op:"path2"`
	Flags int    `op:"flags"` // bits named by the kind
	Mode  uint32 `op:"mode"`
	Off   int64  `op:"off"`
	Off2  int64  `op:"off2"`
	Len   int64  `op:"len"`
	Fill  int    `op:"fill"` // what is written; see pattern
	UID   int    `op:"uid"`
	GID   int    `op:"gid"`
	Atime string `op:"atime"` // now, omit or seconds.nanoseconds
	Mtime string `op:"mtime"`
	Name  string `op:"name"`  // of an extended attribute
	Value string `op:"value"` // its value; ACLs as text
}

// flagName names one bit, or a combination of bits, of modelOp.Flags.
type flagName struct {
	name string
	bits int
}

// formatFlags writes flags as A|B; names of several bits must come before those of their parts.
func formatFlags(names []flagName, flags int) string {
	var parts []string
	for _, n := range names {
		if flags&n.bits == n.bits {
			parts = append(parts, n.name)
			flags &^= n.bits
		}
	}
	if flags != 0 {
		parts = append(parts, fmt.Sprintf("%#x", flags))
	}
	return strings.Join(parts, "|")
}

func parseFlags(names []flagName, s string) (int, error) {
	flags := 0
next:
	for part := range strings.SplitSeq(s, "|") {
		for _, n := range names {
			if n.name == part {
				flags |= n.bits
				continue next
			}
		}
		bits, err := strconv.ParseInt(part, 0, 64)
		if err != nil {
			return 0, fmt.Errorf("unknown flag %q", part)
		}
		flags |= int(bits)
	}
	return flags, nil
}

// String is the operation as a line of a script: "w1 pwrite fd=2 off=4096 len=1 fill=7".
func (op modelOp) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "w%d %s", op.W, op.Kind)
	v := reflect.ValueOf(op)
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("op")
		if key == "" || v.Field(i).IsZero() {
			continue
		}
		fmt.Fprintf(&b, " %s=%s", key, formatField(op.Kind, key, v.Field(i)))
	}
	return b.String()
}

func formatField(kind, key string, v reflect.Value) string {
	switch {
	case key == "flags":
		return formatFlags(modelKinds()[kind].flags, int(v.Int()))
	case key == "mode":
		return fmt.Sprintf("%#o", v.Uint())
	case v.Kind() == reflect.String:
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v.Interface())
}

// opArgument matches key=value with a quoted or plain value.
var opArgument = regexp.MustCompile(`^ (\w+)=("(?:[^"\\]|\\.)*"|\S+)`)

// parseOp is the reverse of modelOp.String.
func parseOp(line string) (modelOp, error) {
	var op modelOp
	head, rest, _ := strings.Cut(line, " ")
	w, err := strconv.Atoi(strings.TrimPrefix(head, "w"))
	if err != nil {
		return op, fmt.Errorf("%q does not start with a worker", line)
	}
	kind, _, _ := strings.Cut(rest, " ")
	op.W, op.Kind = w, kind
	if _, ok := modelKinds()[kind]; !ok {
		return op, fmt.Errorf("unknown operation %q", kind)
	}
	for rest = rest[len(kind):]; rest != ""; {
		arg := opArgument.FindStringSubmatch(rest)
		if arg == nil {
			return op, fmt.Errorf("cannot read %q", rest)
		}
		if err := op.set(arg[1], arg[2]); err != nil {
			return op, fmt.Errorf("%s: %w", arg[0], err)
		}
		rest = rest[len(arg[0]):]
	}
	return op, nil
}

// set sets the field with this key from its text.
func (op *modelOp) set(key, text string) error {
	v := reflect.ValueOf(op).Elem()
	for i := range v.NumField() {
		if key != v.Type().Field(i).Tag.Get("op") {
			continue
		}
		return parseField(op.Kind, key, text, v.Field(i))
	}
	return fmt.Errorf("unknown argument %q", key)
}

func parseField(kind, key, text string, v reflect.Value) error {
	if key == "flags" {
		flags, err := parseFlags(modelKinds()[kind].flags, text)
		v.SetInt(int64(flags))
		return err
	}
	switch v.Kind() {
	case reflect.String:
		s, err := strconv.Unquote(text)
		v.SetString(s)
		return err
	case reflect.Uint32:
		n, err := strconv.ParseUint(text, 0, 32)
		v.SetUint(n)
		return err
	}
	n, err := strconv.ParseInt(text, 0, 64)
	v.SetInt(n)
	return err
}

// parseScript reads operations, one a line. Empty lines and those that start with # are left out, and so
// is a number before an operation.
func parseScript(text string) ([]modelOp, error) {
	var ops []modelOp
	for line := range strings.Lines(text) {
		line = strings.TrimLeft(strings.TrimSpace(line), "0123456789. ")
		if line == "" || line[0] == '#' {
			continue
		}
		op, err := parseOp(line)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// formatScript numbers the operations, one a line.
func formatScript(ops []modelOp) string {
	var b strings.Builder
	for i, op := range ops {
		fmt.Fprintf(&b, "%4d. %s\n", i+1, op)
	}
	return b.String()
}

var repeated = regexp.MustCompile(`(.)\{(\d+)\}`)

// expand writes out what "x{255}" stands for.
func expand(s string) string {
	return repeated.ReplaceAllStringFunc(s, func(r string) string {
		m := repeated.FindStringSubmatch(r)
		n, _ := strconv.Atoi(m[2]) // digits only
		return strings.Repeat(m[1], n)
	})
}
