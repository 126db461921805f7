package axdebug

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/axsched/ax"
)

// seconds is a duration that is a number of seconds in JSON.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// took spells a duration with about three digits: "0.42 ms", "12 ms", "1.3 s",
// "4 m 05 s", "2 h 10 m". None is a dash.
func took(d time.Duration) string {
	switch {
	case d <= 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d m %02d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d h %02d m", d/time.Hour, d%time.Hour/time.Minute)
}

// quantiles spells p50, p95 and p99. No wait at all is a dash, as no sample is.
func quantiles(q ax.Quantiles) string {
	if q.P99 == 0 {
		return "–"
	}
	short := func(d time.Duration) string {
		if d == 0 {
			return "0"
		}
		return took(d)
	}
	return short(q.P50) + " / " + short(q.P95) + " / " + short(q.P99)
}

// number groups the digits of n in threes.
func number[N int | int64 | uint64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent is part of whole with one digit below ten; a dash of nothing.
func percent(part, whole uint64) string {
	if whole == 0 {
		return "–"
	}
	p := 100 * float64(part) / float64(whole)
	if p > 0 && p < 9.95 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", p)
}

// size spells a number of bytes.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// spelled is name as text: bytes that are not UTF-8, which JSON and HTML would make
// all the same, are told apart by their value.
func spelled(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for i, r := range name {
		if _, n := utf8.DecodeRuneInString(name[i:]); r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[i])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// plural is "1 lane", "2 lanes".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + one + "s"
}

// setting spells the value of a configuration field: a policy by its fields
// that are not zero, functions only by their presence.
func setting(v any) string {
	switch v := v.(type) {
	case nil:
		return "off"
	case time.Duration:
		if v == ax.NoTimeout {
			return "none"
		}
		if v == 0 {
			return "0"
		}
		return v.String()
	case int:
		if v == math.MaxInt {
			return "no limit"
		}
		return strconv.Itoa(v)
	case ax.Rate:
		return rateText(v)
	case []ax.Rate:
		if len(v) == 0 {
			return "no limit"
		}
		texts := make([]string, len(v))
		for i, r := range v {
			texts[i] = rateText(r)
		}
		return strings.Join(texts, ", ")
	}
	return policyText(reflect.ValueOf(v))
}

func rateText(r ax.Rate) string {
	per := r.Per
	if per == 0 {
		per = time.Second
	}
	text := fmt.Sprintf("%d per %s", r.Limit, per)
	if r.Burst > 0 {
		text += fmt.Sprintf(", burst %d", r.Burst)
	}
	return text
}

// policyText spells a pointer to a struct, or a struct, by its fields.
func policyText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "off"
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return fmt.Sprint(v.Interface())
	}
	var parts []string
	for field, value := range v.Fields() {
		if !field.IsExported() || value.IsZero() {
			continue
		}
		text := "set"
		if value.Kind() != reflect.Func {
			text = setting(value.Interface())
		}
		parts = append(parts, field.Name+" "+text)
	}
	if parts == nil {
		return "defaults"
	}
	return strings.Join(parts, ", ")
}
