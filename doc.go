// Package ax is a gate between application code and net/http.
package ax
