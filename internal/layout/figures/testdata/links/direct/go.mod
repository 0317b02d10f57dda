module example.com/direct

go 1.26

require example.com/indirect v0.0.0
