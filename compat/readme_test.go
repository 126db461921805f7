package compat_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestREADME: the versions it names are those of go.mod, the tests and helpers it
// names exist.
func TestREADME(t *testing.T) {
	readme, mod := read(t, "README.md"), read(t, "go.mod")
	for _, client := range []string{
		"github.com/aws/aws-sdk-go-v2/service/s3", "github.com/google/go-github/v92", "resty.dev/v3",
		"github.com/hashicorp/go-retryablehttp", "golang.org/x/oauth2", "github.com/tmaxmax/go-sse",
		"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp", "github.com/coder/websocket",
	} {
		m := regexp.MustCompile(`\t` + regexp.QuoteMeta(client) + ` (\S+)\n`).FindStringSubmatch(mod)
		require.NotNil(t, m, client)
		named := regexp.MustCompile(regexp.QuoteMeta(m[1]) + `( \||, )`)
		require.True(t, named.MatchString(readme), "%s %s", client, m[1])
	}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, name := range files {
		code.WriteString(read(t, name))
		if name != "rig_test.go" && name != "pieces_test.go" && name != "writes_test.go" && name != "readme_test.go" {
			require.True(t, strings.Contains(readme, "("+name+")"), name)
		}
	}
	for _, m := range regexp.MustCompile("`(Test\\w+|retryUnlessRefused|axHasSpoken)`").FindAllStringSubmatch(readme, -1) {
		require.True(t, strings.Contains(code.String(), "func "+m[1]+"("), m[1])
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	p, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(p)
}
