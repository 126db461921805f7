package axdebug

import (
	"bytes"
	"html/template"
	"io"
	"net/http"
)

// pages are the templates: one document, its content, and what went wrong.
type pages struct{ t *template.Template }

func parsePages() *pages {
	t := template.New("")
	for _, name := range []string{"page.html", "content.html", "tables.html", "problem.html"} {
		template.Must(t.New(name).Parse(string(mustRead(name))))
	}
	return &pages{t}
}

// document is the whole page.
func (p *pages) document(w io.Writer, v view) error {
	return p.t.ExecuteTemplate(w, "page.html", v)
}

// content is what the page shows anew each second.
func (p *pages) content(w io.Writer, v view) error {
	return p.t.ExecuteTemplate(w, "content.html", v)
}

// problem is the page of a request that failed.
func (p *pages) problem(w io.Writer, title string, status int, why string) {
	_ = p.t.ExecuteTemplate(w, "problem.html", map[string]any{
		"Title": title, "Status": status, "StatusText": http.StatusText(status), "Why": why,
	})
}

// servePage answers with the page as it is now. A look without a stream counts
// as one too: the next finds what has happened since.
func (h *handler) servePage(w http.ResponseWriter, r *http.Request) {
	defer h.rec.look()()
	var page bytes.Buffer
	if err := h.pages.document(&page, h.view(filterOf(r.URL.Query()))); err != nil {
		panic("axdebug: " + err.Error()) // the template is embedded and its data is ours
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes()) // who has gone needs no answer
}
