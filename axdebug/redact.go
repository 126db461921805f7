package axdebug

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/axsched/ax"
	"github.com/axsched/ax/internal/redact"
)

// maxError bounds the text of an error that is kept and shown, in bytes.
const maxError = 300

// redactURL spells raw without user info, query values and fragment, as ax does
// in its errors. What cannot be parsed is not shown at all.
func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return redact.Value
	}
	return redact.URL(u)
}

var urlInText = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>\x60]+`)

// errorText is what the page tells of err: one line, with the URLs in it
// redacted, and without what only the task's URL could have put there.
func errorText(err error, t *ax.Task) string {
	if err == nil {
		return ""
	}
	if p, ok := errors.AsType[*ax.PanicError](err); ok && p.Stack != nil {
		return "ax: panic in the attempt" // its value may hold anything; the caller has it
	}
	text := err.Error()
	if e, ok := errors.AsType[*ax.Error](err); ok && error(e) == err && e.Err != nil {
		text = e.Op + ": " + strings.TrimPrefix(e.Err.Error(), "ax: ") // lane, method and URL have their own columns
	}
	if t != nil {
		text = hideSecretsOf(text, t.URL())
	}
	text = urlInText.ReplaceAllStringFunc(text, func(found string) string {
		u := strings.TrimRight(found, ".,:;)") // the sentence's, not the URL's
		return redactURL(u) + found[len(u):]
	})
	if i := strings.IndexAny(text, "\r\n"); i >= 0 {
		text = text[:i]
	}
	return strings.Clone(clip(text, maxError)) // what is kept must not hold on to a long text
}

// hideSecretsOf takes the user info and query values of raw out of text, however
// the text came by them. A value of fewer than four bytes is a word of the text
// as likely as a secret, and is left.
func hideSecretsOf(text, raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return text
	}
	var secrets []string
	if u.User != nil {
		password, _ := u.User.Password()
		secrets = append(secrets, u.User.String(), password, u.User.Username())
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if _, value, ok := strings.Cut(pair, "="); ok {
			plain, _ := url.QueryUnescape(value)
			secrets = append(secrets, value, plain)
		}
	}
	for _, s := range secrets {
		if len(s) >= 4 {
			text = strings.ReplaceAll(text, s, redact.Value)
		}
	}
	return text
}

// clip is s cut to at most n bytes, at a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
