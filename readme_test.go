package ax_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	readmeFence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	readmeLink  = regexp.MustCompile(`\]\(([^)]+)\)`)
	readmeProof = regexp.MustCompile("\\[`((?:Test|Example|Fuzz)\\w*)`\\]\\(([^)]+)\\)")
	readmeFunc  = regexp.MustCompile(`(?m)^func (Example\w*)\(`)
)

// readmes are the two front pages. Neither is the translation of the other, but
// both show the same code.
var readmes = []string{"README.md", "README.zh-CN.md"}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func TestReadmesShowTheSameCode(t *testing.T) {
	require.Equal(t,
		readmeFence.FindAllString(readText(t, readmes[0]), -1),
		readmeFence.FindAllString(readText(t, readmes[1]), -1))
}

// What the READMEs show is taken from Examples, so it compiles and runs.
func TestReadmeCodeIsTakenFromExamples(t *testing.T) {
	var examples []string
	for _, pattern := range []string{"example*_test.go", "ax*/example*_test.go", "docs/migrate/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			examples = append(examples, unindented(readText(t, file)))
		}
	}
	blocks := readmeFence.FindAllStringSubmatch(readText(t, readmes[0]), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		if block[1] != "go" {
			continue
		}
		shown := unindented("\n" + block[2])
		require.True(t, slices.ContainsFunc(examples, func(e string) bool { return strings.Contains(e, shown) }),
			"in no Example, word for word:\n%s", block[2])
	}
}

// unindented is text without the tabs before its lines.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t")
	}
	return strings.Join(lines, "\n")
}

func TestReadmeIndexHasEveryExample(t *testing.T) {
	files, err := filepath.Glob("example*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		for _, example := range readmeFunc.FindAllStringSubmatch(readText(t, file), -1) {
			for _, readme := range readmes {
				require.Contains(t, readText(t, readme), "[`"+example[1]+"`]("+file+")", "in the index of %s", readme)
			}
		}
	}
}

// A link leads to a file of the repository, and one to a test to that test.
func TestReadmeLinksLeadSomewhere(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, doc := range slices.Concat(readmes, []string{"CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}, docs) {
		text := readmeFence.ReplaceAllString(readText(t, doc), "")
		for _, link := range readmeLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			file, _, _ := strings.Cut(link[1], "#")
			_, err := os.Stat(filepath.Join(filepath.Dir(doc), file))
			require.NoErrorf(t, err, "%s links to %s", doc, link[1])
		}
		for _, proof := range readmeProof.FindAllStringSubmatch(text, -1) {
			file := filepath.Join(filepath.Dir(doc), proof[2])
			require.Contains(t, readText(t, file), "func "+proof[1]+"(", "%s names it", doc)
		}
	}
}
