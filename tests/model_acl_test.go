package tests

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// POSIX ACLs travel as extended attributes: a version, then entries of tag, permissions and id, all
// little-endian (linux/posix_acl_xattr.h).
const (
	aclVersion = 2
	aclNoID    = ^uint32(0)
)

// aclTags are the tags of entries by their text: with and without an id.
var aclTags = []struct {
	text  string
	tag   uint16
	hasID bool
}{
	{"u", 0x01, false}, {"u", 0x02, true}, {"g", 0x04, false}, {"g", 0x08, true}, {"m", 0x10, false}, {"o", 0x20, false},
}

// encodeACL reads "u::7,u:12345:5,g::5,m::7,o::0". What it cannot read becomes an entry that the kernel refuses.
func encodeACL(text string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for entry := range strings.SplitSeq(text, ",") {
		part := strings.Split(entry, ":")
		if len(part) != 3 {
			continue
		}
		perm, _ := strconv.ParseUint(part[2], 10, 16)
		id, err := strconv.ParseUint(part[1], 10, 32)
		tag := uint16(0)
		for _, t := range aclTags {
			if t.text == part[0] && t.hasID == (err == nil) {
				tag = t.tag
			}
		}
		if err != nil {
			id = uint64(aclNoID)
		}
		b = binary.LittleEndian.AppendUint16(b, tag)
		b = binary.LittleEndian.AppendUint16(b, uint16(perm))
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return b
}

// decodeACL is the reverse of encodeACL.
func decodeACL(b []byte) string {
	if len(b) < 4 {
		return fmt.Sprintf("%x", b)
	}
	var entries []string
	for b = b[4:]; len(b) >= 8; b = b[8:] {
		tag, perm, id := binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])
		name, who := fmt.Sprintf("%#x", tag), ""
		for _, t := range aclTags {
			if t.tag != tag {
				continue
			}
			name = t.text
			if t.hasID {
				who = strconv.FormatUint(uint64(id), 10)
			}
		}
		entries = append(entries, fmt.Sprintf("%s:%s:%d", name, who, perm))
	}
	return strings.Join(entries, ",")
}

func TestACLText(t *testing.T) {
	const text = "u::7,u:12345:5,g::4,g:99:0,m::7,o::1"
	if got := decodeACL(encodeACL(text)); got != text {
		t.Errorf("got %s, want %s", got, text)
	}
}
