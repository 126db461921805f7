package ax_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// casesKnown is how many cases from the field there are: H01 to H61.
const casesKnown = 61

// TestEveryCaseIsATest counts the cases: each is a named test somewhere in this
// repository, or stands in docs/cases.md with the reason why not.
func TestEveryCaseIsATest(t *testing.T) {
	tested, excused := casesTested(t), casesExcused(t)
	var missing []string
	for i := range casesKnown {
		id := fmt.Sprintf("H%02d", i+1)
		if tested[id] == 0 && excused[id] == "" {
			missing = append(missing, id)
		}
		delete(tested, id)
		delete(excused, id)
	}
	require.Empty(t, missing, "cases without a test TestCase<id>… and without a reason in docs/cases.md")
	require.Empty(t, tested, "tests of cases that do not exist")
	require.Empty(t, excused, "docs/cases.md names cases that do not exist")
}

// casesTested counts the tests of each case, nested modules included.
func casesTested(t *testing.T) map[string]int {
	name := regexp.MustCompile(`(?m)^func TestCase(H\d+)`)
	found := map[string]int{}
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != "." && strings.HasPrefix(e.Name(), "."):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		for _, m := range name.FindAllSubmatch(src, -1) {
			found[string(m[1])]++
		}
		return err
	})
	require.NoError(t, err)
	return found
}

// casesExcused is the reason that docs/cases.md gives for each case in its table.
func casesExcused(t *testing.T) map[string]string {
	page, err := os.ReadFile(filepath.Join("docs", "cases.md"))
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| (H\d+) \| (.+) \|$`)
	excused := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		excused[m[1]] = m[2]
	}
	return excused
}
