module example.com/links

go 1.26

require (
	example.com/direct v0.0.0
	example.com/indirect v0.0.0
	example.com/tested v0.0.0
)

replace (
	example.com/direct => ./direct
	example.com/indirect => ./indirect
	example.com/tested => ./tested
)
