package main

func doctorCommand([]string) int { return 0 }
