// Works while this instance leads. Starts counting when it sends the request, so it never works too long.
package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	url := os.Getenv("TENURE_URL")
	if url == "" {
		url = "http://127.0.0.1:4040"
	}
	client := http.Client{Timeout: time.Second}
	for ; ; time.Sleep(time.Second) {
		sent := time.Now()
		answer, err := client.Get(url + "/leader")
		if err != nil || answer.StatusCode != http.StatusOK { // no answer means passive too
			fmt.Println("standby")
		} else {
			valid, _ := strconv.Atoi(answer.Header.Get("Tenure-Valid-For-Ms"))
			until := sent.Add(time.Duration(valid) * time.Millisecond)
			fmt.Printf("leader in term %s for %.1f s\n", answer.Header.Get("Tenure-Term"), time.Until(until).Seconds())
		}
		if err == nil {
			answer.Body.Close()
		}
	}
}
