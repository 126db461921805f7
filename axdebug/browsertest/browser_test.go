// Package browsertest looks at axdebug's page in a real Chromium.
package browsertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience is how long a change may take to be seen on the page.
const patience = 15 * time.Second

// browser is one tab of a headless Chromium that started empty.
type browser struct {
	*testing.T
	ctx context.Context
}

// startBrowser needs Debian's package chromium, or CHROMIUM naming another.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := os.Getenv("CHROMIUM")
	if path == "" {
		found, err := exec.LookPath("chromium")
		require.NoError(t, err, "install Debian's package chromium, or set CHROMIUM to a Chromium")
		path = found
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); cancel() })
	b := &browser{t, ctx}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	b.wears(1280, 900, "light")
	return b
}

// run runs one action within patience.
func run[T any](b *browser, a chromedp.Action[T]) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	require.NoError(b, err)
	return v
}

// do runs actions one after the other.
func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	for _, s := range steps {
		run(b, s)
	}
}

// sees waits until a JavaScript expression is true on the page.
func (b *browser) sees(expression string) {
	b.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[chromedp.Void]("Boolean("+expression+")",
		chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	if err != nil {
		b.shoot("failed")
		require.NoError(b, err, expression)
	}
}

// text is the text of the first element of a CSS selector.
func (b *browser) text(selector string) string {
	b.Helper()
	return run(b, chromedp.Evaluate[string](`document.querySelector(`+quote(selector)+`).textContent.trim()`))
}

// texts are the texts of all elements of a CSS selector.
func (b *browser) texts(selector string) []string {
	b.Helper()
	return run(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll(`+quote(selector)+`)].map(e => e.textContent.trim())`))
}

// html is the markup of an element, also when the page may run no script.
func (b *browser) html(selector string) string {
	b.Helper()
	return run(b, chromedp.OuterHTML(chromedp.CSS(selector)))
}

// hears listens to the console; what it returns fails if anything was said there:
// an error of the script, or something that the content policy forbade.
func (b *browser) hears() (quiet func()) {
	b.Helper()
	var mu sync.Mutex
	var said []string
	require.NoError(b, chromedp.Listen(b.ctx, func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			said = append(said, "console: "+string(e.Type))
		case *runtime.EventExceptionThrown:
			said = append(said, "exception: "+e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			said = append(said, "log: "+e.Entry.Text)
		}
	}))
	return func() {
		b.Helper()
		mu.Lock()
		defer mu.Unlock()
		require.Empty(b, said)
	}
}

// readable fails for text whose contrast with what is behind it is below the 4.5
// that WCAG asks for.
func (b *browser) readable() {
	b.Helper()
	faint := run(b, chromedp.Evaluate[[]string](contrast))
	require.Empty(b, faint)
}

// contrast lists the elements with text of too little contrast.
const contrast = `(() => {
	const rgba = (text) => {
		const n = text.match(/[\d.]+/g).map(Number);
		return n.length > 3 ? n : [...n, 1];
	};
	const light = (c) => {
		const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = rgba(getComputedStyle(e).backgroundColor);
			if (c[3] === 1) return c;
		}
		return [255, 255, 255, 1];
	};
	const faint = [];
	for (const e of document.body.querySelectorAll("*")) {
		const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
		if (!own || !e.checkVisibility() || e.closest(".skip, .hide")) continue;
		const a = light(rgba(getComputedStyle(e).color)), z = light(behind(e));
		const ratio = (Math.max(a, z) + 0.05) / (Math.min(a, z) + 0.05);
		if (ratio < 4.5) faint.push(e.tagName + "." + e.className + " " + ratio.toFixed(2) + " " + e.textContent.slice(0, 30));
	}
	return faint;
})()`

// wears sets the size of the window and the colour scheme: "light" or "dark".
func (b *browser) wears(width, height int64, scheme string) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, height), func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return v, err
	})
}

// shoot keeps a picture of the window as an artifact, outside the repository.
func (b *browser) shoot(name string) {
	b.Helper()
	b.keep(name, run(b, chromedp.CaptureScreenshot()))
}

// shootAll keeps a picture of the whole page.
func (b *browser) shootAll(name string) {
	b.Helper()
	b.keep(name, run(b, chromedp.FullScreenshot(100)))
}

func (b *browser) keep(name string, png []byte) {
	b.Helper()
	dir := os.Getenv("ARTIFACTS")
	if dir == "" {
		dir = filepath.Join("..", "..", ".artifacts", "axdebug")
	}
	require.NoError(b, os.MkdirAll(dir, 0o755))
	require.NoError(b, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}
