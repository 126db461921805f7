package main

import (
	"io"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A chart that cannot be drawn is told before the outage is played.
func TestUnwritableChartIsToldFirst(t *testing.T) {
	start := time.Now()
	err := run(io.Discard, nil, filepath.Join(t.TempDir(), "missing", "outage.svg"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Less(t, time.Since(start), time.Second)
}
