package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// splitOptions splits the list that -o takes at its commas. A backslash takes
// a comma, a quote or another backslash after it literally, and double quotes
// do so with all between them; a backslash before anything else stays, since
// globs use it too. mount(8) hands both on unchanged.
func splitOptions(list string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '\\' && i+1 < len(list) && strings.IndexByte(`,"\`, list[i+1]) >= 0:
			i++
			word.WriteByte(list[i])
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			words = append(words, word.String())
			word.Reset()
		default:
			word.WriteByte(c)
		}
	}
	if quoted {
		return nil, usagef("-o %s: a double quote is not closed", list)
	}
	words = append(words, word.String())
	return slices.DeleteFunc(words, func(w string) bool { return w == "" }), nil
}

// applyOptions sorts the words of all -o lists: those about the mount itself
// go into the result, those that name a flag set it in f.
func applyOptions(f *pflag.FlagSet, lists []string) (kernelOptions, error) {
	var k kernelOptions
	typed := changed(f)
	for _, list := range lists {
		words, err := splitOptions(list)
		if err != nil {
			return kernelOptions{}, err
		}
		for _, word := range words {
			if k.take(word) || forMount8(word) {
				continue
			}
			if err := setByOption(f, typed, word); err != nil {
				return kernelOptions{}, err
			}
		}
	}
	return k, nil
}

// changed maps the flags that were typed to their values.
func changed(f *pflag.FlagSet) map[string]string {
	m := make(map[string]string)
	f.Visit(func(flag *pflag.Flag) { m[flag.Name] = flag.Value.String() })
	return m
}

// notOptions are flags that are no words of -o: it cannot hold itself, and
// which process reports where is nobody's choice.
var notOptions = []string{"options", "ready-fd", "help"}

// setByOption sets the flag that word names. typed are the flags that were
// typed too; the two may not differ.
func setByOption(f *pflag.FlagSet, typed map[string]string, word string) error {
	name, value, hasValue := strings.Cut(word, "=")
	flag := f.Lookup(strings.ReplaceAll(name, "_", "-"))
	if flag == nil || slices.Contains(notOptions, flag.Name) {
		return unknownOption(f, name)
	}
	if !hasValue && flag.NoOptDefVal == "" {
		return usagef("option %s needs a value, as in %s=%s", name, name, example(flag))
	}
	if !hasValue {
		value = flag.NoOptDefVal
	}
	if err := flag.Value.Set(value); err != nil {
		return usagef("option %s: %w", name, err)
	}
	if was, ok := typed[flag.Name]; ok && flag.Name != "rule" && was != flag.Value.String() {
		return usagef("--%s=%s and -o %s contradict each other; give one of them", flag.Name, was, word)
	}
	return nil
}

func example(flag *pflag.Flag) string {
	if flag.Name == "rule" {
		return `*.log=4k`
	}
	if flag.DefValue == "" {
		return strings.ToUpper(flag.Value.Type())
	}
	return flag.DefValue
}

// refusals says why options that other FUSE filesystems know are not ours.
var refusals = map[string]string{
	"fsname":     "other software finds tunefs mounts by their source, which is always SOURCE",
	"subtype":    "other software finds tunefs mounts by their type, which is always fuse.tunefs",
	"remount":    "a tunefs mount cannot be changed; unmount it and mount it anew",
	"allow_root": "use allow_other, which lets root in too",
	"direct_io":  "use io=direct",
	"max_read":   "use max-write, which is for reads too",
}

func unknownOption(f *pflag.FlagSet, name string) error {
	if why, ok := refusals[strings.ReplaceAll(name, "-", "_")]; ok {
		return usagef("option %s is not possible: %s", name, why)
	}
	known := slices.DeleteFunc(flagNames(f), func(n string) bool { return slices.Contains(notOptions, n) })
	known = append(known, ignoredWords...)
	for _, fam := range families {
		known = slices.Concat(known, fam.defaults, fam.others)
	}
	slices.Sort(known)
	return usagef("unknown option %q; did you mean %s? ('tunefs mount --help' lists them)", name, nearest(name, known))
}

// ignoredWords are options that speak to mount(8), systemd or the boot
// scripts, or ask for what is always so.
var ignoredWords = []string{
	"defaults", "auto", "noauto", "user", "nouser", "users", "nousers", "owner", "noowner", "group", "nogroup",
	"nofail", "_netdev", "default_permissions", "nonempty", "silent", "loud",
}

// forMount8 reports whether word is none of our business.
func forMount8(word string) bool {
	name, _, hasValue := strings.Cut(word, "=")
	if strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "X-") || name == "comment" {
		return true
	}
	return !hasValue && slices.Contains(ignoredWords, name)
}

// family is a set of options of which the kernel heeds one.
type family struct {
	defaults []string // what holds anyway, and so is not passed on
	others   []string
}

// families are the options about the mount itself.
var families = []family{
	{[]string{"rw"}, []string{"ro"}},
	{[]string{"nosuid"}, []string{"suid"}},
	{[]string{"nodev"}, []string{"dev"}},
	{[]string{"exec"}, []string{"noexec"}},
	{[]string{"relatime", "atime", "norelatime", "nostrictatime"}, []string{"noatime", "strictatime"}},
	{[]string{"diratime"}, []string{"nodiratime"}},
	{[]string{"async"}, []string{"sync"}},
	{nil, []string{"dirsync"}},
}

// kernelOptions gathers options about the mount itself; of contradicting ones
// the last counts, as for mount(8).
type kernelOptions struct{ said []string }

// take notes word down, and reports whether it is such an option.
func (k *kernelOptions) take(word string) bool {
	for _, f := range families {
		if !f.has(word) {
			continue
		}
		k.said = append(slices.DeleteFunc(k.said, f.has), word)
		return true
	}
	return false
}

func (f family) has(word string) bool {
	return slices.Contains(f.defaults, word) || slices.Contains(f.others, word)
}

// words lists what was said and differs from the defaults, sorted.
func (k *kernelOptions) words() []string {
	var words []string
	for _, f := range families {
		for _, w := range f.others {
			if slices.Contains(k.said, w) {
				words = append(words, w)
			}
		}
	}
	slices.Sort(words)
	return words
}
