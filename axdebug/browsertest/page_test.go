package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax/axdebug"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

func TestPageShowsAScriptedLoad(t *testing.T) {
	st := newStage(t, axdebug.Options{Title: "Stage", Control: true})
	b := startBrowser(t)
	quiet := b.hears()
	b.do(chromedp.Navigate(st.server.URL + "/"))
	b.sees(`document.querySelector("#link").dataset.state === "live"`)
	require.Equal(t, []string{"api", "down"}, b.texts("#lanes tbody th"))
	b.shoot("empty")

	st.play()
	b.sees(`[...document.querySelectorAll(".tiles .value")].slice(0, 3).map(e => e.textContent).join() === "3,2,1"`)
	require.Equal(t, "8", b.text("#tile-finished .value"))
	require.Equal(t, "33 %", b.text("#tile-dedupe .value"), "5 of 15")
	require.Contains(t, b.text("#tile-dedupe .hint"), "1 joined a flight · 4 from the window · 1 answer kept")

	require.Equal(t, []string{"api", "down", "fast.example"}, b.texts("#lanes tbody th"))
	require.Contains(t, b.text(`#lanes tr[data-key="api"]`), "2 of 2")
	require.Equal(t, "open", b.text(`#lanes tr[data-key="down"] .badge`))
	require.Equal(t, []string{"GET https://api.example/urgent", "GET https://fast.example/held/b", "GET https://api.example/low"}, b.texts("#queue .url"))
	require.Equal(t, []string{"queued for a slot of its lane", "parked for its owner's budget", "queued for a slot of its lane"}, b.texts("#queue .badge"))
	require.Equal(t, []string{"alice"}, b.texts("#owners tbody th"))

	const left = `parseFloat(document.querySelector(".notice.bad .left").textContent)`
	before := run(b, chromedp.Evaluate[float64](left))
	require.InDelta(t, 45, before, 15)
	b.sees(left + " < " + fmt.Sprint(before-1))

	b.sees(`document.querySelectorAll("#events tbody tr").length > 20`)
	require.NotContains(t, run(b, chromedp.Evaluate[string]("document.documentElement.outerHTML")), "pl4nt3d")
	b.readable()
	b.shootAll("light")
	b.wears(1280, 900, "dark")
	b.readable()
	b.shootAll("dark")
	quiet()
}

func TestPageFitsAPhone(t *testing.T) {
	st := newStage(t, axdebug.Options{Title: "Stage", Control: true})
	st.play()
	b := startBrowser(t)
	for _, scheme := range []string{"light", "dark"} {
		b.wears(360, 740, scheme)
		b.do(chromedp.Navigate(st.server.URL + "/"))
		b.sees(`document.querySelector("#link").dataset.state === "live"`)
		require.True(t, run(b, chromedp.Evaluate[bool]("document.documentElement.scrollWidth <= 360")), "nothing is wider than the screen")
		b.readable()
		b.shootAll("phone-" + scheme)
	}
}

func TestPageIsLive(t *testing.T) {
	st := newStage(t, axdebug.Options{})
	b := startBrowser(t)
	quiet := b.hears()
	b.do(chromedp.Navigate(st.server.URL + "/"))
	require.True(t, run(b, chromedp.Evaluate[bool](`!document.querySelector("[data-control]")`)), "no buttons unless enabled")
	st.play()
	b.sees(`document.querySelector("#tile-active .value").textContent === "3"`)
	close(st.open)
	b.sees(`document.querySelector("#tile-active .value").textContent === "0"`)
	b.sees(`document.querySelector('polyline[data-name="started"]').dataset.values.split(" ").some(n => n > 0)`)
	b.sees(`document.querySelector('polyline[data-name="failed"]').dataset.values.split(" ").includes("3")`)

	b.do(chromedp.Focus(chromedp.CSS(".plot svg")), chromedp.KeyEvent(kb.ArrowLeft))
	require.Regexp(t, `^\d\d:\d\d:\d\d – active \d+, queued \d+, parked \d+$`, b.text("figure output"))

	b.do(chromedp.Click(chromedp.CSS("#freeze")))
	require.Contains(t, b.text("#link"), "Frozen at ")
	clock := b.text("#clock")
	b.do(chromedp.Sleep(1500 * time.Millisecond))
	require.Equal(t, clock, b.text("#clock"))
	b.do(chromedp.Click(chromedp.CSS("#freeze")))
	b.sees(`document.querySelector("#clock").textContent !== ` + quote(clock))
	quiet()

	st.server.CloseClientConnections()
	st.server.Listener.Close()
	b.sees(`document.querySelector("#link").dataset.state === "lost"`)
	require.Contains(t, b.text("#link"), "No connection since ")
	b.shoot("lost")
}

func TestFiltersActAsTheyAreTyped(t *testing.T) {
	st := newStage(t, axdebug.Options{Record: true})
	st.play()
	b := startBrowser(t)
	b.do(chromedp.Navigate(st.server.URL+"/"), chromedp.SendKeys(chromedp.CSS("input[name=lane]"), "down"))
	b.sees(`document.querySelectorAll("#lanes tbody tr").length === 1`)
	b.sees(`[...document.querySelectorAll("#events td[data-label=Lane]")].every(e => e.textContent === "down")`)
	require.Contains(t, run(b, chromedp.Location()), "?lane=down")

	b.do(chromedp.Evaluate[chromedp.Void](`{
		const kind = document.querySelector("select[name=kind]");
		kind.value = "breaker-opened";
		kind.dispatchEvent(new Event("input", { bubbles: true }));
	}`))
	b.sees(`document.querySelectorAll("#events tbody tr").length === 1`)
	require.Equal(t, "breaker opened", b.text("#events .badge"))
	b.do(chromedp.Reload())
	require.Equal(t, "breaker opened", b.text("#events .badge"), "the address keeps the filter")

	b.do(chromedp.SendKeys(chromedp.CSS("input[name=q]"), "nothing like it"))
	b.sees(`document.querySelector("#events .empty")`)
	require.Equal(t, "No event matches the filter. Clear it", b.text("#events .empty"))
	b.shoot("no-match")
	b.do(chromedp.Click(chromedp.CSS("#events .empty a")))
	b.sees(`document.querySelectorAll("#events tbody tr").length > 20`)
	require.True(t, strings.HasSuffix(run(b, chromedp.Location()), "/"))
}

func TestLanesArePausedByKeyboard(t *testing.T) {
	st := newStage(t, axdebug.Options{Control: true})
	b := startBrowser(t)
	quiet := b.hears()
	b.do(chromedp.Navigate(st.server.URL + "/"))
	b.sees(`document.querySelector("#link").dataset.state === "live"`)
	for range 40 { // from the top of the page, by Tab alone
		b.do(chromedp.KeyEvent(kb.Tab))
		if run(b, chromedp.Evaluate[bool](`document.activeElement.getAttribute("aria-label") === "Pause lane api"`)) {
			break
		}
	}
	require.NotEqual(t, "none", run(b, chromedp.Evaluate[string]("getComputedStyle(document.activeElement).outlineStyle")), "focus is to be seen")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.sees(`document.querySelector("[aria-label='Resume lane api']")`)
	require.True(t, st.Stats().Lanes["api"].Paused)
	require.Equal(t, "Resume lane api", run(b, chromedp.Evaluate[string](`document.activeElement.getAttribute("aria-label")`)), "focus stays")
	b.sees(`document.querySelector(".notice").textContent === "Lane api is paused until it is resumed."`)
	b.shoot("paused")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.sees(`document.querySelector("[aria-label='Pause lane api']")`)
	require.False(t, st.Stats().Lanes["api"].Paused)
	quiet()
}

func TestRefusedControlIsTold(t *testing.T) {
	st := newStage(t, axdebug.Options{Control: true})
	b := startBrowser(t)
	b.do(chromedp.Navigate(st.server.URL + "/"))
	b.sees(`document.querySelector("#lanes form")`)
	b.do(chromedp.Evaluate[chromedp.Void](`{
		const form = document.querySelector("#lanes form").cloneNode(true);
		form.querySelector("input").value = "gone";
		document.body.append(form);
		form.requestSubmit();
	}`))
	b.sees(`!document.querySelector("#problem").hidden`)
	require.Contains(t, b.text("#problem"), "Not done: The scheduler refused: ")
	b.shoot("refused")
}

func TestPageWorksWithoutJavaScript(t *testing.T) {
	st := newStage(t, axdebug.Options{Title: "Stage", Control: true, Record: true})
	st.play()
	b := startBrowser(t)
	b.do(func(ctx context.Context, _ *chromedp.Target) (v chromedp.Void, err error) {
		_, err = chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return v, err
	})
	b.do(chromedp.Navigate(st.server.URL + "/?kind=breaker-opened"))
	require.Contains(t, b.html("#tile-active"), ">3<")
	require.Contains(t, b.html("#link"), "Snapshot")
	require.Contains(t, b.html("#events"), "breaker opened")
	require.NotContains(t, b.html("#events"), "submitted")
	b.shoot("without-javascript")

	b.do(chromedp.Click(chromedp.CSS("[aria-label='Pause lane api']")), chromedp.WaitVisible(chromedp.CSS("[aria-label='Resume lane api']")))
	require.True(t, st.Stats().Lanes["api"].Paused)
	require.Equal(t, st.server.URL+"/", run(b, chromedp.Location()))
}

func TestProblemPage(t *testing.T) {
	st := newStage(t, axdebug.Options{Title: "Stage"})
	b := startBrowser(t)
	resp := run(b, chromedp.NavigateResponse(st.server.URL+"/nowhere"))
	require.Equal(t, int64(http.StatusNotFound), int64(resp.Status))
	require.Contains(t, b.text("main"), "There is no such page.")
	b.shoot("problem")
	b.do(chromedp.Click(chromedp.CSS("main a")), chromedp.WaitVisible(chromedp.CSS("#link")))
}

// TestRowsKeepTheirPlace: focus and elements survive the updates, also when lanes
// come in before them.
func TestRowsKeepTheirPlace(t *testing.T) {
	st := newStage(t, axdebug.Options{Control: true})
	b := startBrowser(t)
	b.do(chromedp.Navigate(st.server.URL + "/"))
	b.sees(`document.querySelector("#link").dataset.state === "live"`)
	b.do(chromedp.Focus(chromedp.CSS("[aria-label='Pause lane down']")))
	b.do(chromedp.Evaluate[chromedp.Void](`window.row = document.querySelector('tr[data-key="down"]')`))
	for _, host := range []string{"aaa.example", "bbb.example", "zzz.example"} {
		_, err := st.Get(context.Background(), "https://"+host+"/")
		require.NoError(t, err)
	}
	b.sees(`document.querySelectorAll("#lanes tbody tr").length === 5`)
	require.Equal(t, []string{"aaa.example", "api", "bbb.example", "down", "zzz.example"}, b.texts("#lanes tbody th"))
	require.True(t, run(b, chromedp.Evaluate[bool](`window.row === document.querySelector('tr[data-key="down"]')`)))
	require.Equal(t, "Pause lane down", run(b, chromedp.Evaluate[string](`document.activeElement.getAttribute("aria-label")`)))
}
