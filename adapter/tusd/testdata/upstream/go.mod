module upstream

go 1.26.0

require (
	github.com/Acconut/go-httptest-recorder v1.0.0
	github.com/golang/mock v1.6.0
	github.com/leasehold/leasehold v0.1.0
	github.com/leasehold/leasehold/adapter/tusd v0.1.0
	github.com/stretchr/testify v1.11.1
	github.com/tus/tusd/v2 v2.9.1
)

require (
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	golang.org/x/exp v0.0.0-20250106191152-7588d65b2ba8 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/leasehold/leasehold => ../../../..

replace github.com/leasehold/leasehold/adapter/tusd => ../..
