package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSplitOptions(t *testing.T) {
	for list, want := range map[string][]string{
		"":                                  nil,
		",,":                                nil,
		"ro":                                {"ro"},
		"rw,noatime,":                       {"rw", "noatime"},
		`rule=*.db=4k\,io=direct,ro`:        {"rule=*.db=4k,io=direct", "ro"},
		`"rule=*.db=4k,io=direct",ro`:       {"rule=*.db=4k,io=direct", "ro"},
		`rule="*.{a,b}=4k",ro`:              {"rule=*.{a,b}=4k", "ro"},
		`rule=\*=4k`:                        {`rule=\*=4k`},
		`rule=a\\,b`:                        {`rule=a\`, "b"},
		`rule=\"a=4k`:                       {`rule="a=4k`},
		`trailing\`:                         {`trailing\`},
		"comment=systemd automount,x-a=b c": {"comment=systemd automount", "x-a=b c"},
	} {
		got, err := splitOptions(list)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("splitOptions(%q) = %q, %v; want %q", list, got, err, want)
		}
	}
}

// Whatever the words are, escaping and splitting gives them back.
func TestSplitOptionsReversesEscaping(t *testing.T) {
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`, `"`, `\"`)
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching(`[a-z=*\\,"{} ]+`)).Draw(t, "words")
		var escaped []string
		for _, w := range words {
			escaped = append(escaped, escape.Replace(w))
		}
		got, err := splitOptions(strings.Join(escaped, ","))
		if err != nil || !slices.Equal(got, words) {
			t.Fatalf("got %q, %v; want %q", got, err, words)
		}
	})
}

// No list of options makes parsing panic, and no refusal lacks its reason.
func TestOptionsNeverPanic(t *testing.T) {
	word := rapid.OneOf(rapid.SampledFrom([]string{"ro", "blksize=8k", "io=direct", "rule", "allow_other", "x-", "=", "=x", "-", "no"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		list := strings.Join(rapid.SliceOf(word).Draw(t, "words"), ",")
		e, _, _ := testEnv(nil)
		if _, err := parseMount(e, []string{"/src", "/mnt", "-o", list}); err != nil && err.Error() == "" {
			t.Fatal("refused without a word")
		}
	})
}

// What mount(8), systemd and fstab pass is taken, and only what the kernel
// has to heed is passed on.
func TestOptionsOfMount8(t *testing.T) {
	for list, want := range map[string][]string{
		"defaults":                            nil,
		"rw,nosuid,nodev,exec,relatime,async": nil,
		"rw,auto,noauto,user,users,owner,group,nouser,nofail,_netdev": nil,
		"x-systemd.automount,X-mount.mkdir=0755,comment=hello":        nil,
		"default_permissions,allow_other":                             nil,
		"ro,noexec,noatime,nodiratime,sync,dirsync":                   {"dirsync", "noatime", "nodiratime", "noexec", "ro", "sync"},
		"rw,suid,dev":           {"dev", "suid"},
		"ro,rw":                 nil,
		"rw,ro":                 {"ro"},
		"noexec,exec":           nil,
		"suid,nosuid":           nil,
		"noatime,relatime":      nil,
		"relatime,strictatime":  {"strictatime"},
		"sync,async":            nil,
		"noatime,nostrictatime": nil,
	} {
		if got := parse(t, "-o", list).options.MountOptions; !reflect.DeepEqual(got, want) {
			t.Errorf("-o %s: passes on %q, want %q", list, got, want)
		}
	}
}
