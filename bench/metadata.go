package bench

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	metadataFiles  = 20_000
	metadataBudget = 30 * time.Second // for one row, and for the five of the metadata program together
	treeFolders    = 100
	treeFiles      = 100 // in each folder
	treeFileSize   = 8 << 10
)

// nameOperations are what the metadata program measures, in its order.
var nameOperations = []string{"create", "stat", "open+close", "rename", "unlink"}

// metadata measures what is done to names and attributes. The modes differ only in how data travels, so one stands for
// all.
func (s *Setup) metadata(ctx context.Context) ([]Row, error) {
	program, err := Compile(ctx, "metadata", s.Dir)
	if err != nil {
		return nil, err
	}
	archive := filepath.Join(s.Dir, "tree.tar")
	if err := createArchive(archive); err != nil {
		return nil, err
	}
	var all []Row
	filesystems := append([]Filesystem{Native, s.tunefs("tunefs", "auto")}, s.Peers...)
	err = s.withAll(ctx, filesystems, func(subjects []*Attached) error {
		for _, subject := range subjects {
			if err := spreadFolders(subject.source); err != nil {
				return err
			}
		}
		names, err := s.nameRows(ctx, program, subjects)
		if err != nil {
			return err
		}
		trees, err := s.treeRows(ctx, archive, subjects)
		all = append(names, trees...)
		return err
	})
	return all, err
}

// nameRows runs the metadata program on every subject.
func (s *Setup) nameRows(ctx context.Context, program string, subjects []*Attached) ([]Row, error) {
	var cases []Case[map[string]float64]
	for _, subject := range subjects {
		cases = append(cases, Case[map[string]float64]{
			Name: subject.Name,
			Measure: func(ctx context.Context) (map[string]float64, error) {
				return runMetadata(ctx, program, subject.Dir)
			},
		})
	}
	plan := Plan{Rounds: s.Rounds, WarmUp: true, Budget: metadataBudget}
	s.Progress.Begin(fmt.Sprintf("create, stat, open, rename, unlink of %d files", metadataFiles), plan.Steps(len(cases)))
	defer s.Progress.End()
	runs, err := Interleave(ctx, cases, plan, s.Progress)
	if err != nil {
		return nil, err
	}
	var all []Row
	for _, operation := range nameOperations {
		samples := make([][]float64, len(subjects))
		for i := range runs {
			for _, run := range runs[i] {
				samples[i] = append(samples[i], run[operation])
			}
		}
		all = append(all, rows("metadata", operation, PerSecond, subjects, samples)...)
	}
	return all, nil
}

// runMetadata runs the metadata program in a new folder and returns operations per second.
func runMetadata(ctx context.Context, program, dir string) (map[string]float64, error) {
	folder, err := os.MkdirTemp(dir, "names-")
	if err != nil {
		return nil, err
	}
	out, err := Output(ctx, Command{Argv: []string{program, folder, fmt.Sprint(metadataFiles)}})
	if err != nil {
		return nil, err
	}
	rates := make(map[string]float64)
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var operation string
		var rate float64
		if _, err := fmt.Sscan(lines.Text(), &operation, &rate); err != nil {
			return nil, fmt.Errorf("%s printed %q: %w", program, lines.Text(), err)
		}
		rates[operation] = rate
	}
	return rates, os.Remove(folder)
}

// treeRows unpacks the archive and walks what it holds.
func (s *Setup) treeRows(ctx context.Context, archive string, subjects []*Attached) ([]Row, error) {
	for _, subject := range subjects {
		folder := filepath.Join(subject.Dir, "tree")
		if err := os.Mkdir(folder, 0o755); err != nil {
			return nil, err
		}
		if _, err := untar(ctx, archive, folder); err != nil {
			return nil, err
		}
	}
	works := []struct {
		name    string
		measure func(context.Context, *Attached) (Run, error)
	}{
		{fmt.Sprintf("untar %d files", treeFolders*treeFiles), func(ctx context.Context, subject *Attached) (Run, error) {
			return untarAgain(ctx, archive, subject.Dir)
		}},
		{"find, warm", func(ctx context.Context, subject *Attached) (Run, error) {
			return find(ctx, subject.Dir)
		}},
		{"find, cold", func(ctx context.Context, subject *Attached) (Run, error) {
			return findCold(ctx, subject.Dir)
		}},
	}
	if os.Geteuid() != 0 {
		works = works[:len(works)-1] // only root may drop caches
	}
	var all []Row
	for _, work := range works {
		samples, err := s.runSamples(ctx, work.name, subjects, work.measure)
		if err != nil {
			return nil, err
		}
		all = append(all, rows("metadata", work.name, Seconds, subjects, samples)...)
	}
	return all, nil
}

// runSamples measures one work on every subject and returns wall times in seconds.
func (s *Setup) runSamples(ctx context.Context, work string, subjects []*Attached,
	measure func(context.Context, *Attached) (Run, error)) ([][]float64, error) {
	var cases []Case[float64]
	for _, subject := range subjects {
		cases = append(cases, Case[float64]{Name: subject.Name, Measure: func(ctx context.Context) (float64, error) {
			run, err := measure(ctx, subject)
			return run.Wall.Seconds(), err
		}})
	}
	plan := Plan{Rounds: s.Rounds, WarmUp: true, Budget: metadataBudget}
	s.Progress.Begin(work, plan.Steps(len(cases)))
	defer s.Progress.End()
	return Interleave(ctx, cases, plan, s.Progress)
}

// createArchive packs small files of seeded size into a tar file.
func createArchive(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	err = writeArchive(tar.NewWriter(out))
	return errors.Join(err, out.Flush(), file.Close())
}

func writeArchive(archive *tar.Writer) error {
	random := rand.New(rand.NewPCG(1, 0))
	content := randomText(random, treeFileSize)
	for folder := range treeFolders {
		for file := range treeFiles {
			header := tar.Header{
				Name: fmt.Sprintf("folder-%02d/file-%02d", folder, file),
				Mode: 0o644,
				Size: random.Int64N(treeFileSize),
			}
			if err := archive.WriteHeader(&header); err != nil {
				return err
			}
			if _, err := archive.Write(content[:header.Size]); err != nil {
				return err
			}
		}
	}
	return archive.Close()
}

func untar(ctx context.Context, archive, folder string) (Run, error) {
	return Exec(ctx, Command{Argv: []string{"tar", "-xf", archive, "-C", folder}})
}

// untarAgain unpacks into a new folder, and removes that.
func untarAgain(ctx context.Context, archive, dir string) (Run, error) {
	folder, err := os.MkdirTemp(dir, "unpacked-")
	if err != nil {
		return Run{}, err
	}
	run, err := untar(ctx, archive, folder)
	return run, errors.Join(err, os.RemoveAll(folder))
}

// spreadFolders makes ext4 put new folders in dir far away from each other on the disk, by their names. For minutes it
// reuses no inode that was deleted, and looks at each of them again for every new file near by; without this, creating
// files where the last run deleted its own is ten times slower, on whatever is measured.
func spreadFolders(dir string) error {
	const topOfTree = 0x20000 // FS_TOPDIR_FL; chattr +T
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	flags, err := unix.IoctlGetUint32(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return nil // this filesystem has no such flags, and no need for one
	}
	if err := unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topOfTree)); errors.Is(err, unix.EOPNOTSUPP) {
		return nil // it has others
	} else if err != nil {
		return fmt.Errorf("chattr +T %s: %w", dir, err)
	}
	return nil
}

// find walks the tree and asks for every file's size.
func find(ctx context.Context, dir string) (Run, error) {
	return Exec(ctx, Command{Argv: []string{"find", filepath.Join(dir, "tree"), "-printf", `%s\n`}})
}

// findCold is find when the kernel has forgotten all names and attributes. The disk's blocks stay in memory, so that it
// is the filesystems that are measured.
func findCold(ctx context.Context, dir string) (Run, error) {
	if err := syncFilesystem(dir); err != nil {
		return Run{}, err
	}
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0o200); err != nil {
		return Run{}, err
	}
	return find(ctx, dir)
}
