package axdebug

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
	"time"
)

//go:embed assets
var files embed.FS

// asset is one file of the page, revalidated by its hash.
type asset struct {
	name, etag string
	content    []byte
}

// loadAssets reads what the browser fetches by itself; templates are not served.
func loadAssets() map[string]asset {
	all := make(map[string]asset)
	for _, name := range []string{"style.css", "app.js", "icon.svg"} {
		b := mustRead(name)
		sum := sha256.Sum256(b)
		all[name] = asset{name: name, etag: `"` + hex.EncodeToString(sum[:8]) + `"`, content: b}
	}
	return all
}

// mustRead returns a file that was embedded when the package was built.
func mustRead(name string) []byte {
	b, err := files.ReadFile("assets/" + name)
	if err != nil {
		panic("axdebug: " + err.Error())
	}
	return b
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(a.name)))
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", a.etag)
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.content))
}
