package clock

import (
	"testing"
	"time"
)

func TestAClockStandsWhileItIsHeld(t *testing.T) {
	c := New()
	timer := c.NewTimer(time.Second)
	c.Hold()
	for c.Now() >= time.Second { // a busy host took that long, and the timer may have fired
		c = New()
		timer = c.NewTimer(time.Second)
		c.Hold()
	}
	early := make(chan struct{})
	c.AfterFunc(time.Hour, func() { close(early) })
	at := c.Now()
	time.Sleep(1100 * time.Millisecond)
	if now := c.Now(); now != at || !c.HeldWithin(0) {
		t.Errorf("it went from %v to %v", at, now)
	}
	c.Hold() // once more is no more
	select {
	case <-timer.C:
		t.Error("a timer fires while the clock stands")
	default:
	}
	c.Go(time.Hour) // it knows better
	if now := c.Now(); now < at || now > at+10*time.Minute {
		t.Errorf("it went on at %v, where it stood at %v", now, at)
	}
	<-timer.C
	if now := c.Now(); now < time.Second || !c.HeldWithin(time.Minute) {
		t.Errorf("the timer fired at %v", now)
	}
	select {
	case <-early:
		t.Error("a timer fires an hour early")
	default:
	}
}

func TestAClockThatWasNotHeldIsPutBack(t *testing.T) {
	c := New()
	time.Sleep(20 * time.Millisecond)
	c.Go(5 * time.Millisecond)
	if now := c.Now(); now < 0 || c.HeldWithin(0) {
		t.Errorf("it shows %v", now)
	}
	c.Go(time.Hour) // not before its beginning
	if now := c.Now(); now < 0 || now > 10*time.Minute {
		t.Errorf("it shows %v", now)
	}
	c.Go(-time.Hour)
	if now := c.Now(); now > 10*time.Minute {
		t.Errorf("it was put forward, to %v", now)
	}
}

// The second word may never come.
func TestAClockGoesOnByItselfWhenTheBoxHasRunForAWhile(t *testing.T) {
	c := New()
	fired := c.NewTimer(0)
	<-fired.C
	c.Hold()
	held := c.NewTimer(0)
	for range mostTicks - 1 {
		c.tick()
	}
	select {
	case <-held.C:
		t.Fatal("it went on too early")
	default:
	}
	c.tick()
	<-held.C
}

func TestATimerThatWasStoppedDoesNotFire(t *testing.T) {
	c := New()
	stopped := c.NewTimer(time.Second) // in which a busy host comes to stop it
	stopped.Stop()
	c.Hold()
	c.Go(0)
	<-c.NewTimer(1500 * time.Millisecond).C
	select {
	case <-stopped.C:
		t.Error("it fires")
	default:
	}
}
