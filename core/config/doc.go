// Package config holds every setting of an agent: its name, default, rule and the place it is read from (protocol.md, 10).
//
// One table drives everything: parsing, validation, the defaults and the printed documentation. A default that depends on another
// setting (RECEIVER_LEASE, RETAIN_LIMIT) is the zero value in a Config until Validate fills it in, so that a program may change the
// other setting first.
package config
