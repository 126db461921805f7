// Package compat shows that clients which were not written for ax work through
// Scheduler.Transport as they are: object stores, API clients, retrying clients,
// token sources, tracers, proxies, event streams and websockets. It exports
// nothing; its tests are the proof and its examples the recipe. README.md says
// what needs a setting, and what does not work.
package compat
