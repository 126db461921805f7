package ax

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// fieldError is one fault of a configuration.
type fieldError struct{ path, problem string }

func (e *fieldError) Error() string { return e.path + " " + e.problem }

// configFaults collects what is wrong with a configuration.
type configFaults []error

// invalid is all of faults as one error, one a line; nil if there is none.
func invalid(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	lines := make([]string, len(faults))
	for i, f := range faults {
		lines[i] = "ax: " + f.Error()
	}
	return &joinedError{strings.Join(lines, "\n"), faults}
}

func (f *configFaults) add(path, format string, args ...any) {
	*f = append(*f, &fieldError{path, fmt.Sprintf(format, args...)})
}

// notNegative refuses a v below zero. want says what to write instead.
func notNegative[T int | int64 | time.Duration](f *configFaults, path, field string, v T, want string) {
	if v < 0 {
		f.add(dot(path, field), "is %v; %s", v, want)
	}
}

// enum refuses a v outside 0 to last. want lists the values.
func enum[E interface {
	~int
	fmt.Stringer
}](f *configFaults, path, field string, v, last E, want string) {
	if v < 0 || v > last {
		f.add(dot(path, field), "is %v; want %s", v, want)
	}
}

// rates validates each of rs.
func (f *configFaults) rates(path string, rs []Rate) {
	for i, r := range rs {
		*f = append(*f, r.validate(dot(path, elem("Rate", i)))...)
	}
}

// dot is the path of a field of what is at path.
func dot(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// elem is the path of element i of a field.
func elem(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
